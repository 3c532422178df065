package files

import (
	"io/fs"
	"os"
	"syscall"
)

const noReader = syscall.Errno(0) // matches no error

func setMode(dir string, mode fs.FileMode) error { return os.Chmod(dir, mode) }

// Rename renames a file or directory.
func Rename(from, to string) error { return os.Rename(from, to) }

// OwnerOf returns -1 for both: owners have no numeric ids on Windows.
func OwnerOf(fs.FileInfo) (uid, gid int) { return -1, -1 }
