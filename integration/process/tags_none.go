//go:build !fdb

package process

const tags = ""
