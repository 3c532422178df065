package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// RestoreOptions define what a snapshot may contain. The zero value is for untrusted snapshots.
type RestoreOptions struct {
	Limits Limits
	// AnyLinks restores links as they are stored. Without it, a link that leads out of the folder, or has ".."
	// anywhere but at its beginning, is an ErrConfig. Restore never writes through a link.
	AnyLinks bool
}

// Restore unpacks a snapshot into the folder dir. The folder must be empty. A missing folder is created if its
// parent exists. Restore returns the index of the restored tree; callers that know the expected Hash can compare
// it. What Read rejects, Restore rejects too.
//
// On an error, everything that was unpacked is removed.
func Restore(ctx context.Context, r io.Reader, dir string, opts RestoreOptions) (m *Manifest, err error) {
	root, made, err := emptyDir(dir)
	if err != nil {
		return nil, failure("restore to", dir, fumehood.ErrInfrastructure, err)
	}
	u := newUnpacker(ctx, root, opts.AnyLinks)
	defer func() {
		if err != nil {
			m, err = nil, errors.Join(failure("restore to", dir, fumehood.ErrInfrastructure, err), clearDir(root))
		}
		err = errors.Join(err, root.Close())
		if made && err != nil {
			err = errors.Join(err, os.Remove(dir))
		}
	}()
	err = scan(ctx, r, opts.Limits, u.entry)
	if werr := u.finish(); err == nil {
		err = werr
	}
	if err != nil {
		return nil, err
	}
	m = u.manifest()
	archive.AwaitForks() // files may be programs
	return m, restoreDirs(root, m)
}

// emptyDir opens an empty folder, and creates it if it is missing.
func emptyDir(dir string) (root *os.Root, made bool, err error) {
	switch err := os.Mkdir(dir, 0o755); {
	case err == nil:
		made = true
	case !errors.Is(err, fs.ErrExist):
		return nil, false, cause(err)
	}
	root, err = openRoot(dir)
	if err != nil {
		return nil, false, err
	}
	names, err := readDir(root)
	if err == nil && len(names) > 0 {
		err = &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("the folder is not empty"), Hint: "name an empty folder, or one that does not exist"}
	}
	if err != nil {
		_ = root.Close() // nothing was written
		return nil, false, err
	}
	return root, made, nil
}

// clearDir removes the content of a folder.
func clearDir(root *os.Root) error {
	names, err := readDir(root)
	for _, d := range names {
		err = errors.Join(err, root.RemoveAll(d.Name()))
	}
	return err
}

// unpacker writes checked entries: each name comes once, and its parents are folders. Other goroutines write
// files of at most bufferSize, while the stream is read further.
type unpacker struct {
	root     *os.Root
	anyLinks bool
	entries  []*Entry
	at       string  // path of the open folder: most entries are in the same folder as the previous one
	open     *folder // the open folder
	ladder   ladder
	writers  *errgroup.Group
	failed   func() error // the first error of a writer
}

// folder is an open folder. It is closed when its last user is done.
type folder struct {
	*os.Root
	users atomic.Int32
}

func (f *folder) release() {
	if f.users.Add(-1) == 0 {
		_ = f.Close() // nothing was written
	}
}

func newUnpacker(ctx context.Context, root *os.Root, anyLinks bool) *unpacker {
	writers, ctx := errgroup.WithContext(context.WithoutCancel(ctx)) // the stream's reader checks ctx itself
	writers.SetLimit(helpers)
	return &unpacker{root: root, ladder: ladder{root: root}, anyLinks: anyLinks, writers: writers, failed: func() error { return context.Cause(ctx) }}
}

// finish waits for the writers and returns their first error.
func (u *unpacker) finish() error {
	err := u.writers.Wait()
	u.ladder.close()
	if u.open != nil {
		u.open.release()
	}
	return err
}

// manifest returns the index of everything that was written.
func (u *unpacker) manifest() *Manifest {
	m := &Manifest{}
	for _, e := range u.entries {
		m.Entries = append(m.Entries, *e)
	}
	m.sort()
	return m
}

func (u *unpacker) entry(e Entry, content io.Reader) error {
	if err := u.failed(); err != nil {
		return err
	}
	u.entries = append(u.entries, &e)
	dir, base := path.Split(e.Path)
	if err := u.enter(strings.TrimSuffix(dir, "/")); err != nil {
		return err
	}
	switch e.Type {
	case Dir:
		err := u.open.Mkdir(base, 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = nil // created earlier for its content
		}
		return err
	case Link:
		return u.link(base, e)
	case File, impliedDir: // no entry is implied
	}
	data, _ := buffers.Get().(*[bufferSize]byte)
	if e.Size > bufferSize {
		defer buffers.Put(data)
		return writeFile(u.open.Root, base, &e, content, data[:])
	}
	if _, err := io.ReadFull(content, data[:e.Size]); err != nil {
		return err
	}
	in := u.open
	in.users.Add(1)
	u.writers.Go(func() error {
		defer in.release()
		defer buffers.Put(data)
		return writeFile(in.Root, base, &e, bytes.NewReader(data[:e.Size]), nil)
	})
	return nil
}

// enter opens a folder. It creates the folder if it has no entry, or if its entry comes later.
func (u *unpacker) enter(dir string) error {
	if u.open != nil && dir == u.at {
		return nil
	}
	root, err := u.ladder.open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = u.root.MkdirAll(filepath.FromSlash(dir), 0o700); err == nil {
			root, err = u.ladder.open(dir)
		}
	}
	if err != nil {
		return err
	}
	if u.open != nil {
		u.open.release()
	}
	u.at, u.open = dir, &folder{Root: root}
	u.open.users.Store(1)
	return nil
}

// writeFile creates a file and sets the entry's hash. A file that is stored with holes gets holes again.
func writeFile(in *os.Root, base string, e *Entry, content io.Reader, buf []byte) error {
	f, err := in.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	var to io.Writer = f
	_, holes := content.(sparse)
	if holes {
		to = &archive.SparseWriter{File: f}
	}
	_, err = io.CopyBuffer(io.MultiWriter(to, sum), content, buf)
	if err == nil && holes {
		err = f.Truncate(e.Size)
	}
	e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := errors.Join(err, f.Chmod(fs.FileMode(e.Mode)), f.Close()); err != nil {
		return err
	}
	return in.Chtimes(base, e.ModTime, e.ModTime)
}

func (u *unpacker) link(base string, e Entry) error {
	if !u.anyLinks && archive.LeadsOut(e.Path, e.Target) {
		return &fumehood.Error{
			Op: "entry", Path: strconv.Quote(e.Path), Class: fumehood.ErrConfig, Err: fmt.Errorf("the link points out of the folder, or may, to %q", e.Target),
			Hint: "restore links as they are with --any-links",
		}
	}
	return u.open.Symlink(filepath.FromSlash(e.Target), base)
}

// restoreDirs sets the modes and times of all folders, the deepest first. It does so last, because a read-only
// folder cannot be filled, and writing into a folder changes its time.
func restoreDirs(root *os.Root, m *Manifest) error {
	l := ladder{root: root}
	defer l.close()
	at, in := "", root // the parent of the last folder
	defer func() { closeOther(in, root) }()
	for i := len(m.Entries) - 1; i >= 0; i-- {
		e := m.Entries[i]
		if e.Type != Dir {
			continue
		}
		dir, name := path.Split(e.Path)
		if dir = strings.TrimSuffix(dir, "/"); dir != at {
			parent, err := l.open(dir)
			if err != nil {
				return err
			}
			closeOther(in, root)
			at, in = dir, parent
		}
		if !e.ModTime.IsZero() {
			if err := in.Chtimes(name, e.ModTime, e.ModTime); err != nil {
				return err
			}
		}
		if err := in.Chmod(name, fs.FileMode(e.Mode)); err != nil {
			return err
		}
	}
	return nil
}

// closeOther closes a folder unless it is root.
func closeOther(dir, root *os.Root) {
	if dir != root {
		_ = dir.Close() // nothing was written
	}
}
