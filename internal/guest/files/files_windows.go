package files

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

const noReader = syscall.Errno(0) // matches no error

func setMode(dir string, mode fs.FileMode) error { return os.Chmod(dir, mode) }

func setTime(f *os.File, at time.Time) error {
	t := syscall.NsecToFiletime(at.UnixNano())
	return os.NewSyscallError("SetFileTime", syscall.SetFileTime(syscall.Handle(f.Fd()), nil, &t, &t))
}

// Rename renames a file or directory.
func Rename(from, to string) error { return os.Rename(from, to) }

// OwnerOf returns -1 for both: owners have no numeric ids on Windows.
func OwnerOf(fs.FileInfo) (uid, gid int) { return -1, -1 }
