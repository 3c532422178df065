//go:build unix

package archive

import "syscall"

// NonBlock keeps the opening of a file from blocking on a pipe that has replaced it, and from making a terminal the
// controlling terminal of this process.
const NonBlock = syscall.O_NONBLOCK | syscall.O_NOCTTY
