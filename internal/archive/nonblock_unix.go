//go:build unix

package archive

import "syscall"

const nonblock = syscall.O_NONBLOCK
