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
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
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
