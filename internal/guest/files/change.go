package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Mkdir creates a directory with exactly that mode. With parents it creates missing parents with mode 0755, and
// leaves an existing directory as it is. With an owner, as for Owner, it is mkdirFor that user; path is absolute.
func Mkdir(path string, mode fs.FileMode, parents bool, owner string) error {
	if owner != "" {
		uid, gid, err := Owner(owner)
		if err != nil {
			return err
		}
		return mkdirFor(path, mode, parents, uid, gid)
	}
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

// makeParents creates the missing directories above path.
func makeParents(path string) error {
	dir := parent(path)
	for dir != "" && os.IsPathSeparator(dir[len(dir)-1]) { // Mkdir returns another error for "file/"
		dir = dir[:len(dir)-1]
	}
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return syscall.ENOTDIR
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := makeParents(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if info, serr := os.Stat(dir); serr == nil && info.IsDir() {
			return nil // somebody else created it meanwhile
		}
		return err
	}
	return nil
}

// parent returns the part of path before its last element. It does not clean it: "link/.." is not ".".
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

// Remove removes a file, a link or an empty directory. With all it also removes a directory with its content. It
// follows no link.
func Remove(path string, all bool) error {
	if !all {
		return os.Remove(path)
	}
	if _, err := os.Lstat(path); err != nil {
		return err // RemoveAll would return nil
	}
	err := os.RemoveAll(path)
	if at := (*fs.PathError)(nil); errors.As(err, &at) && at.Path != path {
		// The caller doesn't know this path.
		return fmt.Errorf("%s: %w", at.Path, at.Err)
	}
	return err
}

// Chown sets the owner and group of a path, or of the link itself if it is one. With all it does so for everything
// below it too. It follows no link, even if a link replaces a directory meanwhile.
func Chown(path string, uid, gid int, all bool) error {
	if !all {
		return ownerError(os.Lchown(path, uid, gid), uid, gid)
	}
	return Walk(path, -1, func(e Entry) error {
		if e.Err == nil {
			e.Err = e.at.lchown(uid, gid)
		}
		if e.Err != nil && e.Path != "." {
			// The caller doesn't know this path.
			return fmt.Errorf("%s: %w", e.Path, Cause(e.Err))
		}
		return e.Err
	})
}

// ownerError returns the error of a change of an owner. If the user namespace lacks one of the ids, that is ErrNoUser.
func ownerError(err error, uid, gid int) error {
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w: an id of %d:%d is missing in the user namespace", ErrNoUser, uid, gid)
	}
	return err
}

// Cause returns an error of package os without its path, which the caller knows.
func Cause(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	if at := (*os.LinkError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}
