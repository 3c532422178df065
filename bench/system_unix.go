//go:build unix

package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// detach puts a command into a separate process group. Otherwise Ctrl-C in a terminal would reach it too, and an
// interrupted `docker create` might still create its container after the cleanup.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// writeBack waits until the system has written all dirty pages to disk.
func writeBack() { unix.Sync() }
