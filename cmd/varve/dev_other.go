//go:build !linux

package main

import "syscall"

// devProcess keeps Ctrl-C from nodes, which are told by the process that started them.
func devProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
