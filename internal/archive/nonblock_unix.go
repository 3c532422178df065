//go:build unix

package archive

import "syscall"

// NonBlock keeps the opening of a file from waiting for the other end of a pipe that has taken its place, and
// from making a terminal this process's own.
const NonBlock = syscall.O_NONBLOCK | syscall.O_NOCTTY
