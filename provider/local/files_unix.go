//go:build unix

package local

import "syscall"

// errNotEmpty is what the system says of a directory that is not empty.
const errNotEmpty = syscall.ENOTEMPTY
