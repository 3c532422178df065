package fake

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

type file struct {
	data    []byte // never modified
	mode    fs.FileMode
	written time.Time
}

func (b *sandbox) Files(user string) provider.FileBackend { return files{b, user} }

// files are the files of a box, accessed as user, who must be root.
type files struct {
	*sandbox
	user string
}

func newError(class error, name string) error {
	return &fumehood.Error{Class: class, Err: fmt.Errorf("%s: %w", name, class)}
}

// isDir reports whether there is a directory at name. b.mu is held.
func (b *sandbox) isDir(name string) bool {
	below := func(other string) bool { return strings.HasPrefix(other, name+"/") }
	for other := range b.files {
		if below(other) {
			return true
		}
	}
	for other := range b.dirs {
		if other == name || below(other) {
			return true
		}
	}
	return false
}

// room returns an error if no file can be created at name: it is a directory, or one of its parents is a file. b.mu
// is held.
func (b *sandbox) room(name string) error {
	if b.isDir(name) {
		return newError(fumehood.ErrIsDirectory, name)
	}
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, is := b.files[dir]; is {
			return newError(fumehood.ErrNotDirectory, name)
		}
	}
	return nil
}

func (b *sandbox) read(name string) ([]byte, error) {
	name = path.Clean(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	f, is := b.files[name]
	switch {
	case is:
		return f.data, nil
	case b.isDir(name):
		return nil, newError(fumehood.ErrIsDirectory, name)
	}
	return nil, newError(fumehood.ErrNotFound, name)
}

func (b *sandbox) write(name string, data []byte, mode fs.FileMode, changed time.Time) error {
	name = path.Clean(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.room(name); err != nil {
		return err
	}
	if changed.IsZero() {
		changed = time.Now()
	}
	b.files[name] = file{data, mode, changed}
	return nil
}

// describe describes a file or directory. b.mu is held.
func (b *sandbox) describe(name string) (fumehood.FileInfo, error) {
	info := fumehood.FileInfo{Name: path.Base(name), Mode: fs.ModeDir | 0o755}
	if f, is := b.files[name]; is {
		info.Size, info.Mode, info.ModTime = int64(len(f.data)), f.mode, f.written
	} else if !b.isDir(name) {
		return info, newError(fumehood.ErrNotFound, name)
	}
	return info, nil
}

func (f files) checkFiles() error {
	if f.user != "" && f.user != user {
		return unsupportedError("other users")
	}
	return nil
}

func (f files) Stat(_ context.Context, name string) (fumehood.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := f.describe(path.Clean(name))
	return info, cmp.Or(f.checkFiles(), err)
}

func (f files) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error) {
	data, err := f.read(name)
	if err = cmp.Or(f.checkFiles(), err); err != nil {
		return nil, fumehood.FileInfo{}, err
	}
	info, err := f.Stat(ctx, name)
	data = data[min(offset, int64(len(data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return io.NopCloser(bytes.NewReader(data)), info, err
}

func (f files) Write(_ context.Context, name string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	if opts.Owner != "" {
		return unsupportedError("owners of files")
	}
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err == nil && int64(len(data)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("read the content: %w", err)}
	}
	if err := f.checkFiles(); err != nil {
		return err
	}
	return f.write(name, data, opts.Mode, opts.ModTime)
}

// Walk describes files, and their parent directories.
func (f files) Walk(_ context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) {
		root = path.Clean(root)
		f.mu.Lock()
		all := map[string]fumehood.FileInfo{}
		info, err := f.describe(root)
		all[""] = info
		for _, name := range slices.Concat(slices.Collect(maps.Keys(f.files)), slices.Collect(maps.Keys(f.dirs))) {
			for ; name != root && strings.HasPrefix(name, strings.TrimSuffix(root, "/")+"/"); name = path.Dir(name) {
				rel := strings.TrimPrefix(name[len(root):], "/")
				if depth < 0 || strings.Count(rel, "/") < depth {
					all[rel], _ = f.describe(name) // it exists
				}
			}
		}
		f.mu.Unlock()
		if err = cmp.Or(f.checkFiles(), err); err != nil {
			yield(fumehood.WalkEntry{}, err)
			return
		}
		for _, rel := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }) {
			if !yield(fumehood.WalkEntry{Path: cmp.Or(rel, "."), FileInfo: all[rel]}, nil) {
				return
			}
		}
	}
}

// Change creates and removes files and directories, and renames files.
func (f files) Change(_ context.Context, c provider.Change) error {
	if err := f.checkFiles(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name, target := path.Clean(c.Path), path.Clean(c.Target)
	was, isFile := f.files[name]
	isDir := f.isDir(name)
	switch {
	case c.Op == provider.ChangeMkdir && c.Owner != "":
		return unsupportedError("owners of directories")
	case c.Op == provider.ChangeMkdir:
		if isFile || isDir && !c.Recursive {
			return newError(fumehood.ErrExists, name)
		}
		if err := f.room(name); err != nil && !isDir {
			return err
		}
		f.dirs[name] = true
		return nil
	case c.Op != provider.ChangeRemove && c.Op != provider.ChangeRename, c.Op == provider.ChangeRename && isDir:
		return unsupportedError(c.Op + " of this kind")
	case !isFile && !isDir:
		return newError(fumehood.ErrNotFound, name)
	case c.Op == provider.ChangeRename:
		if err := f.room(target); err != nil {
			return err
		}
		delete(f.files, name)
		f.files[target] = was
		return nil
	}
	within := func(other string) bool { return other == name || strings.HasPrefix(other, name+"/") }
	n := 0
	for other := range f.files {
		if within(other) {
			n++
		}
	}
	if isDir && n > 0 && !c.Recursive {
		return newError(fumehood.ErrNotEmpty, name)
	}
	maps.DeleteFunc(f.files, func(other string, _ file) bool { return within(other) })
	maps.DeleteFunc(f.dirs, func(other string, _ bool) bool { return within(other) })
	return nil
}

// Upload writes the archive's regular files and directories.
func (f files) Upload(ctx context.Context, dir string, archive io.Reader) error {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
		case h.Typeflag == tar.TypeDir:
			if err := f.Change(ctx, provider.Change{Op: provider.ChangeMkdir, Path: path.Join(dir, h.Name), Recursive: true}); err != nil {
				return err
			}
		case h.Typeflag != tar.TypeReg:
			return unsupportedError("links and special files")
		default:
			if err := f.Write(ctx, path.Join(dir, h.Name), r, h.Size, fumehood.WriteOptions{Mode: fs.FileMode(h.Mode).Perm()}); err != nil { //nolint:gosec // Perm takes nine bits
				return err
			}
		}
	}
}

// Download returns an archive of the regular files only.
func (f files) Download(ctx context.Context, name string) (io.ReadCloser, error) {
	name = path.Clean(name)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for e, err := range f.Walk(ctx, name, -1) {
		if err != nil {
			return nil, err
		}
		if !e.Mode.IsRegular() {
			continue
		}
		data, err := f.read(path.Join(name, e.Path))
		if err == nil {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(path.Base(name), e.Path), Size: int64(len(data)), Mode: int64(e.Mode.Perm()), ModTime: e.ModTime})
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return nil, err
		}
	}
	return io.NopCloser(&archive), w.Close()
}
