package local

import "syscall"

// errNotEmpty is the system's error for a directory that is not empty: ERROR_DIR_NOT_EMPTY.
const errNotEmpty = syscall.Errno(145)
