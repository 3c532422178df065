//go:build unix

package local

import "syscall"

// errNotEmpty is the system's error for a directory that is not empty.
const errNotEmpty = syscall.ENOTEMPTY
