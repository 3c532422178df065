package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Mkdir makes a directory of exactly that mode. With parents, those that are missing are made with mode
// 0755, and a directory that is there is left as it is.
func Mkdir(path string, mode fs.FileMode, parents bool) error {
	if parents {
		if err := makeParents(path); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, 0o700)
	if parents && errors.Is(err, fs.ErrExist) {
		info, serr := os.Stat(path)
		switch {
		case serr != nil:
			return serr
		case !info.IsDir():
			return syscall.ENOTDIR
		}
		return nil
	}
	if err != nil {
		return err
	}
	return setMode(path, mode)
}

// makeParents makes the directories above path that are missing.
func makeParents(path string) error {
	dir := parent(path)
	for dir != "" && os.IsPathSeparator(dir[len(dir)-1]) { // MkdirAll says something else of "file/"
		dir = dir[:len(dir)-1]
	}
	if dir == "" {
		return nil
	}
	return os.MkdirAll(dir, 0o755)
}

// parent is what is before path's last element. It is not cleaned: "link/.." is not ".".
func parent(path string) string {
	end := len(path)
	for end > 0 && os.IsPathSeparator(path[end-1]) {
		end--
	}
	for end > 0 && !os.IsPathSeparator(path[end-1]) {
		end--
	}
	return path[:end]
}

// Remove removes a file, a link or an empty directory; with all, also one that is not, following no link.
func Remove(path string, all bool) error {
	if !all {
		return os.Remove(path)
	}
	if _, err := os.Lstat(path); err != nil {
		return err // RemoveAll would not say so
	}
	err := os.RemoveAll(path)
	if at := (*fs.PathError)(nil); errors.As(err, &at) && at.Path != path {
		return fmt.Errorf("%s: %w", at.Path, at.Err) // it is not known to who asked
	}
	return err
}

// Chown gives a path, or the link itself where it is one, to a user and group; with all, also all that is below it. No link is
// followed, also where a directory is being replaced by one.
func Chown(path string, uid, gid int, all bool) error {
	if !all {
		return os.Lchown(path, uid, gid)
	}
	return Walk(path, -1, func(e Entry) error {
		if e.Err == nil {
			e.Err = e.at.lchown(uid, gid)
		}
		if e.Err != nil && e.Path != "." {
			return fmt.Errorf("%s: %w", e.Path, Cause(e.Err)) // it is not known to who asked
		}
		return e.Err
	})
}

// Cause is an error of package os without the path, which who asked knows.
func Cause(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	if at := (*os.LinkError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}
