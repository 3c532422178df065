//go:build unix

package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// detach gives a command a process group of its own. Else Ctrl-C in a terminal would reach it too, and a
// `docker create` that is cut off may still make its container when everything has been cleaned up.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// writeBack waits until what is dirty in the system's memory is on its disks.
func writeBack() { unix.Sync() }
