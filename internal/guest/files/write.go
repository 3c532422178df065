package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Options configure how a file is written.
type Options struct {
	Mode     fs.FileMode // permission bits, regardless of the umask
	UID, GID int         // of the owner; -1 leaves it unchanged
	Atomic   bool        // the file is replaced as a whole, or not at all
	ModTime  time.Time   // the zero value means the time of the write
}

// Writer is a file that is being written. The caller must call Finish.
type Writer struct {
	*os.File
	mode  fs.FileMode
	time  time.Time
	place string // for an atomic write: the final path
}

// Create creates or truncates a regular file, and creates missing parent directories, which have the same owner. If path is not a regular file,
// it is not opened, and the error is archive.ErrNotRegular.
func Create(path string, opts Options) (*Writer, error) {
	if err := writable(path, opts); err != nil {
		return nil, err
	}
	w := &Writer{mode: opts.Mode.Perm(), time: opts.ModTime}
	var err error
	if opts.Atomic {
		if w.place, err = followLinks(path); err != nil {
			return nil, err
		}
		w.File, err = os.CreateTemp(parent(w.place), ".fumehood-*")
	} else {
		w.File, err = openToWrite(path, w.mode)
	}
	if err != nil {
		return nil, err
	}
	if opts.UID >= 0 || opts.GID >= 0 { // before the old content is removed: it may not be allowed
		err = ownerError(w.Chown(opts.UID, opts.GID), opts.UID, opts.GID)
	}
	if err == nil {
		err = w.Truncate(0)
	}
	if err != nil {
		return nil, w.Finish(err)
	}
	return w, nil
}

// WriteProgram writes a program, regardless of the umask, and syncs it. The file appears as a whole. Until WriteProgram
// returns, this process starts no other: one that has not executed its own program yet would have the file open, and
// the file could not be executed (ETXTBSY).
func WriteProgram(path string, content []byte, mode fs.FileMode) (err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync() // so that a crash leaves no file with the name and other content
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writable checks what is at path. If there is nothing, it creates missing parent directories for the file's owner.
func writable(path string, opts Options) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && os.IsPathSeparator(path[len(path)-1]):
		return syscall.EISDIR
	case errors.Is(err, fs.ErrNotExist):
		return parentsFor(path, opts)
	case err != nil:
		return err
	case info.IsDir():
		return syscall.EISDIR
	case !info.Mode().IsRegular():
		return archive.ErrNotRegular
	}
	return nil
}

// parentsFor creates the missing directories above path for the file's owner.
func parentsFor(path string, opts Options) error {
	if opts.UID < 0 && opts.GID < 0 {
		return makeParents(path)
	}
	dir := parent(path)
	if info, err := os.Stat(dir); dir == "" || err == nil && info.IsDir() {
		return nil
	}
	return mkdirFor(dir, 0o755, true, opts.UID, opts.GID)
}

// openToWrite opens a file without truncating it: something else may be there by now.
func openToWrite(path string, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|archive.NonBlock, mode)
	if errors.Is(err, noReader) {
		return nil, archive.ErrNotRegular
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = archive.ErrNotRegular
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// maxLinks is the limit of links followed for one path, the same as in Linux (MAXSYMLINKS).
const maxLinks = 40

// followLinks returns path with the links at its end followed. The result need not exist.
func followLinks(path string) (string, error) {
	for range maxLinks {
		link, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link
		}
		if !filepath.IsAbs(link) {
			link = parent(path) + link
		}
		path = link
	}
	return "", syscall.ELOOP
}

// Finish closes the file. If err is not nil, writing has failed: then an atomic file is removed.
func (w *Writer) Finish(err error) error {
	if err == nil {
		err = w.Chmod(w.mode)
	}
	if err == nil && !w.time.IsZero() {
		err = setTime(w.File, w.time)
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	archive.AwaitForks() // the file may be a program
	if w.place == "" {
		return err
	}
	if err == nil {
		err = Rename(w.Name(), w.place)
	}
	if err != nil {
		_ = os.Remove(w.Name()) // its error would hide the reason
	}
	return err
}
