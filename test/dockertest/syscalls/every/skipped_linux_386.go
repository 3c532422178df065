package main

import "golang.org/x/sys/unix"

// skippedHere are the calls that only this architecture has.
var skippedHere = []uintptr{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_PAUSE, unix.SYS_SIGRETURN, unix.SYS_SIGSUSPEND}
