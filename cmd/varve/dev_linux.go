package main

import "syscall"

// devProcess keeps Ctrl-C from nodes, which are told by the process that started them, and lets no node outlive it.
func devProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
