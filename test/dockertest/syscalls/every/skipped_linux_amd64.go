package main

import "golang.org/x/sys/unix"

// skippedHere are the calls that only this architecture has. The last is rt_sigreturn of x32.
var skippedHere = []uintptr{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_PAUSE, 513}
