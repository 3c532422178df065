package owner

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"
)

// The files that mark the folder of a process.
const (
	ownerFile = "owner" // contains the ID of the process that made it, in text form
	keptFile  = "kept"  // exists if the folder must stay; contains the time until when, in RFC 3339, if it expires
)

// Folder is a folder that a process made for itself.
type Folder struct {
	Path, Name string
	Owner      string // the text form of an ID; anything else means an unknown owner
	Kept       bool
	Expires    time.Time // when a kept folder expires; zero if it does not
}

// StateDir returns where folders of a kind are: $XDG_STATE_HOME/fumehood/<kind>, or .local/state/fumehood/<kind> in the
// user's home. If no variable names the home, StateDir uses the user database.
func StateDir(kind string) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG Base Directory Specification ignores relative paths
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

// MakeFolder creates a folder of mode 0700 that is marked as this process's. If it exists already, the error is
// fs.ErrExist.
func MakeFolder(dir, name string, kept bool) (string, error) {
	self, err := Self()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// The folder gets its marks before its name, so a process that is killed here leaves no folder without an owner.
	unnamed, err := makeUnnamed(dir, self)
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

// rename gives a folder its name. If that exists already, even as an empty folder, the error is fs.ErrExist.
func rename(unnamed, folder string) error {
	if _, err := os.Lstat(folder); err == nil {
		return &fs.PathError{Op: "mkdir", Path: folder, Err: fs.ErrExist}
	}
	return os.Rename(unnamed, folder) // fails if a marked folder was created meanwhile
}

const (
	// unnamedPrefix is the prefix of the names of folders whose marks are incomplete. The process that makes or removes
	// the folder follows.
	unnamedPrefix = ".new-"
	// unnamedFor is how long such a folder may exist if its process cannot be judged. Older ones are abandoned.
	unnamedFor = time.Hour
)

// makeUnnamed makes a folder in dir for what this process is making or removing.
func makeUnnamed(dir string, self ID) (string, error) {
	return os.MkdirTemp(dir, unnamedPrefix+url.PathEscape(self.String())+"-")
}

// abandoned reports whether nobody will finish what was begun in an unnamed folder.
func abandoned(e fs.DirEntry) bool {
	text := strings.TrimPrefix(e.Name(), unnamedPrefix)
	text, _ = url.PathUnescape(text[:max(strings.LastIndexByte(text, '-'), 0)]) // otherwise Parse fails
	id, perr := Parse(text)
	self, serr := Self()
	if perr == nil && serr == nil {
		switch Judge(self, id) {
		case Alive:
			return false
		case Dead:
			return true
		case Unknown: // its age decides
		}
	}
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > unnamedFor
}

// Folders lists the folders in dir. It returns nothing if dir does not exist or is "". It also removes folders whose
// creation or removal was not finished.
func Folders(dir string) ([]Folder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Folder
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unnamedPrefix) {
			if abandoned(e) {
				_ = os.RemoveAll(filepath.Join(dir, e.Name())) // the next call retries
			}
			continue
		}
		all = append(all, ReadFolder(filepath.Join(dir, e.Name())))
	}
	return all, nil
}

// ReadFolder returns the folder at path with its owner.
func ReadFolder(path string) Folder {
	text, _ := os.ReadFile(filepath.Join(path, ownerFile)) // missing or incomplete: an unknown owner
	f := Folder{Path: path, Name: filepath.Base(path), Owner: string(text)}
	until, err := os.ReadFile(filepath.Join(path, keptFile))
	f.Kept = err == nil
	f.Expires, _ = time.Parse(time.RFC3339, string(until)) // damaged: it stays until it is named
	return f
}

// Keep marks a folder that MakeFolder made as kept, or changes when it expires. A zero time means never. A process that
// is killed meanwhile leaves the mark as it was.
func Keep(folder string, expires time.Time) error {
	var text []byte
	if !expires.IsZero() {
		text = expires.UTC().AppendFormat(nil, time.RFC3339)
	}
	return WriteFile(filepath.Join(folder, keptFile), text)
}

// WriteFile creates or replaces a file of mode 0600, which is never seen incomplete.
func WriteFile(file string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Discard removes a folder that MakeFolder made. If the process is killed meanwhile, the folder still has its marks, or
// no longer has its name.
func Discard(folder string) error {
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return RemoveFolder(folder) // for example a link, which is not followed
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
	self, err := Self()
	if err != nil {
		return err
	}
	unnamed, err := makeUnnamed(filepath.Dir(folder), self)
	if err != nil {
		return err
	}
	if err = os.Rename(folder, filepath.Join(unnamed, "discarded")); errors.Is(err, fs.ErrNotExist) {
		err = nil // another process removes it
	}
	return errors.Join(err, os.RemoveAll(unnamed))
}

// RemoveFolder removes a folder, even if modes deny access to folders in it, as long as they belong to this machine's
// user. It does not touch anything outside the folder, even if links are put into it meanwhile.
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

// unlock makes a folder, and those in it, writable for this user. Errors are ignored: they show when the folder is
// removed.
func unlock(above *os.Root, name string) {
	_ = above.Chmod(name, 0o700) // needed to read it
	r, err := above.OpenRoot(name)
	if err != nil {
		return
	}
	defer r.Close()
	f, err := r.Open(".")
	if err != nil {
		return
	}
	entries, _ := f.ReadDir(-1) // on an error: what could be read
	_ = f.Close()
	for _, e := range entries {
		if e.IsDir() {
			unlock(r, e.Name())
		}
	}
}
