//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// noReader is the error of opening a pipe without a reader, or a socket.
const noReader = syscall.ENXIO

// setMode sets the mode of a new directory. It fails if a link has taken the directory's place.
func setMode(dir string, mode fs.FileMode) error {
	return onDir(dir, func(f *os.File) error { return f.Chmod(mode) })
}

// setOwner sets the owner of a new directory. It fails if a link has taken the directory's place.
func setOwner(dir string, uid, gid int) error {
	return onDir(dir, func(f *os.File) error { return f.Chown(uid, gid) })
}

func onDir(dir string, do func(*os.File) error) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// Rename renames a file or directory. As in the kernel, a directory may replace an empty one.
func Rename(from, to string) error { return syscall.Rename(from, to) }

// OwnerOf returns the user and group id of a file, or -1 for both if they are unknown.
func OwnerOf(info fs.FileInfo) (uid, gid int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}
