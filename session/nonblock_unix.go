//go:build unix

package session

import "syscall"

// nonblock opens a pipe that has taken a file's place without waiting for a writer.
const nonblock = syscall.O_NONBLOCK
