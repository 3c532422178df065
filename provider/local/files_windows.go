package local

import "syscall"

// errNotEmpty is what the system says of a directory that is not empty: ERROR_DIR_NOT_EMPTY.
const errNotEmpty = syscall.Errno(145)
