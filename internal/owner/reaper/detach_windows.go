package reaper

import (
	"os"
	"os/signal"
	"syscall"
)

// detachedProcess starts a process without a console (DETACHED_PROCESS of CreateProcess).
const detachedProcess = 0x8

// detached protects the reaper from the signals of its owner's console.
var detached = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | detachedProcess}

// detach makes a reaper ignore interrupts, because it ends when its work is done.
func detach() { signal.Ignore(os.Interrupt) }
