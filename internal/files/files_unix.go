//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// noReader is the error of opening a pipe that nobody reads, or a socket.
const noReader = syscall.ENXIO

// setMode sets the mode of a directory that was just made, and not of what a link, which has taken its
// place, points to.
func setMode(dir string, mode fs.FileMode) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// Rename is the kernel's own, which replaces an empty directory by another.
func Rename(from, to string) error { return syscall.Rename(from, to) }

// OwnerOf returns the numbers of a file's owner.
func OwnerOf(info fs.FileInfo) (uid, gid int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}
