package reaper

import (
	"os"
	"os/signal"
	"syscall"
)

// detachedProcess gives a process no console (DETACHED_PROCESS of CreateProcess).
const detachedProcess = 0x8

// detached keeps the reaper from the signals of its owner's console.
var detached = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | detachedProcess}

// detach makes a reaper live on when it is told to end: it ends when its work is done.
func detach() { signal.Ignore(os.Interrupt) }
