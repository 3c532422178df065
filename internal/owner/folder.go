package owner

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"
)

// The files that mark a process's folder.
const (
	ownerFile = "owner" // the process that made it, in the text form of ID
	keptFile  = "kept"  // is there when the folder is to stay
)

// Folder is a folder that a process made for itself.
type Folder struct {
	Path, Name string
	Owner      string // the text form of an ID; anything else is an unknown owner
	Kept       bool
}

// StateDir is where folders of a kind are: $XDG_STATE_HOME/fumehood/<kind>, or .local/state/fumehood/<kind>
// in the user's home. Where no variable says where that is, the user database does.
func StateDir(kind string) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // a relative one is to be ignored, says the XDG Base Directory Specification
		home, err := os.UserHomeDir()
		if err != nil {
			u, uerr := user.Current()
			if uerr != nil || !filepath.IsAbs(u.HomeDir) {
				return "", err
			}
			home = u.HomeDir
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "fumehood", kind), nil
}

// MakeFolder makes a folder of mode 0700 that is marked as this process's. One that is there already is
// an fs.ErrExist.
func MakeFolder(dir, name string, kept bool) (string, error) {
	self, err := Self()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// It has its marks before it has its name: a process that is killed here leaves no folder that is nobody's.
	unnamed, err := os.MkdirTemp(dir, unnamedPrefix)
	if err != nil {
		return "", err
	}
	err = os.WriteFile(filepath.Join(unnamed, ownerFile), []byte(self.String()), 0o600)
	if kept && err == nil {
		err = os.WriteFile(filepath.Join(unnamed, keptFile), nil, 0o600)
	}
	folder := filepath.Join(dir, name)
	if err == nil {
		err = rename(unnamed, folder)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(unnamed))
	}
	return folder, nil
}

// rename gives a folder its name. One that is there already, even an empty one, is an fs.ErrExist.
func rename(unnamed, folder string) error {
	if _, err := os.Lstat(folder); err == nil {
		return &fs.PathError{Op: "mkdir", Path: folder, Err: fs.ErrExist}
	}
	return os.Rename(unnamed, folder) // over one with marks, which is made meanwhile, it is an error
}

const (
	// unnamedPrefix begins the names of folders that have not all their marks yet, or any more.
	unnamedPrefix = ".new-"
	// unnamedFor is how long such a one may last; what is older is nobody's any more.
	unnamedFor = time.Hour
)

// Folders lists what is in dir, which need not exist and may be "": then there is nothing. On the way it removes what was
// never finished, or removed.
func Folders(dir string) ([]Folder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Folder
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unnamedPrefix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unnamedFor {
				_ = os.RemoveAll(filepath.Join(dir, e.Name())) // the next one tries again
			}
			continue
		}
		all = append(all, ReadFolder(filepath.Join(dir, e.Name())))
	}
	return all, nil
}

// ReadFolder tells whose a folder is.
func ReadFolder(path string) Folder {
	text, _ := os.ReadFile(filepath.Join(path, ownerFile)) // none, or a torn one: an unknown owner
	_, err := os.Stat(filepath.Join(path, keptFile))
	return Folder{Path: path, Name: filepath.Base(path), Owner: string(text), Kept: err == nil}
}

// Discard removes a folder that MakeFolder has made. A process that is killed meanwhile leaves one that has its marks still, or no
// name any more.
func Discard(folder string) error {
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return RemoveFolder(folder) // a link, say, which is not followed
	}
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrPermission) {
		return RemoveFolder(folder)
	}
	for _, e := range entries {
		if e.Name() != ownerFile && e.Name() != keptFile {
			err = errors.Join(err, RemoveFolder(filepath.Join(folder, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	unnamed, err := os.MkdirTemp(filepath.Dir(folder), unnamedPrefix)
	if err != nil {
		return err
	}
	if err = os.Rename(folder, filepath.Join(unnamed, "discarded")); errors.Is(err, fs.ErrNotExist) {
		err = nil // somebody else does it
	}
	return errors.Join(err, os.RemoveAll(unnamed))
}

// RemoveFolder removes a folder, whatever the modes of the folders in it that belong to this machine's user. Nothing outside of
// it is touched, whatever links somebody puts into it meanwhile.
func RemoveFolder(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	if above, err := os.OpenRoot(filepath.Dir(path)); err == nil {
		unlock(above, filepath.Base(path))
		_ = above.Close() // nothing was written
	}
	return os.RemoveAll(path)
}

// unlock makes a folder, and those in it, ones that this user may change. What cannot be changed shows when it is removed.
func unlock(above *os.Root, name string) {
	_ = above.Chmod(name, 0o700) // before it is read
	r, err := above.OpenRoot(name)
	if err != nil {
		return
	}
	defer r.Close()
	f, err := r.Open(".")
	if err != nil {
		return
	}
	entries, _ := f.ReadDir(-1) // as many as there are
	_ = f.Close()
	for _, e := range entries {
		if e.IsDir() {
			unlock(r, e.Name())
		}
	}
}
