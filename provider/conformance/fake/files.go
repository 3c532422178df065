package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/fumehood/fumehood"
)

// The methods of fileSystem that lock it.

func (f *fileSystem) mkdirAll(c cred, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.makeDirs(c, path)
}

func (f *fileSystem) chmod(path string, perm fs.FileMode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, err := f.existing(root, path, true); err == nil {
		n.mode = n.mode.Type() | perm.Perm()
	}
}

func (f *fileSystem) chown(path string, c cred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, err := f.existing(root, path, true); err == nil {
		n.uid, n.gid = c.uid, c.gid
	}
}

func (f *fileSystem) special(c cred, path, kind string) error {
	mode, ok := map[string]fs.FileMode{
		"fifo": fs.ModeNamedPipe, "socket": fs.ModeSocket, "device": fs.ModeDevice | fs.ModeCharDevice,
	}[kind]
	if !ok {
		return fmt.Errorf("no such kind of file: %s", kind)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.add(c, path, &node{mode: mode | 0o666}, false)
}

func (f *fileSystem) symlink(c cred, target, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.add(c, path, &node{mode: fs.ModeSymlink | 0o777, target: target}, false)
}

func (f *fileSystem) read(c cred, path string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.regular(c, path, mayRead)
	if err != nil {
		return nil, err
	}
	return n.data, nil
}

// write replaces or makes a file, whose content data becomes. An owner that is not nil is the file's then.
func (f *fileSystem) write(c cred, path string, data []byte, opts fumehood.WriteOptions, owner *cred) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if opts.Atomic {
		return f.fresh(c, path, &node{data: data, mode: opts.Mode.Perm()}, owner)
	}
	n, err := f.toWrite(c, path, opts.Mode, true)
	if err == nil && owner != nil {
		err = n.give(c, *owner)
	}
	if err != nil {
		return err
	}
	n.data, n.mode, n.modTime = data, opts.Mode.Perm(), time.Now()
	return nil
}

func (f *fileSystem) appendTo(c cred, path string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.toWrite(c, path, 0o644, false)
	if err != nil {
		return err
	}
	n.data, n.modTime = append(n.data, data...), time.Now()
	return nil
}

// toWrite returns the regular file at path, which is made if need be.
func (f *fileSystem) toWrite(c cred, path string, perm fs.FileMode, makeParents bool) (*node, error) {
	n, err := f.regular(c, path, mayWrite)
	if errors.Is(err, fumehood.ErrNotFound) {
		if makeParents {
			if err := f.parents(c, path); err != nil {
				return nil, err
			}
		}
		n = &node{mode: perm.Perm()}
		err = f.add(c, path, n, true)
	}
	return n, err
}

func (f *fileSystem) stat(c cred, file string, follow bool) (fumehood.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.existing(c, file, follow)
	if err != nil {
		return fumehood.FileInfo{}, err
	}
	return n.info(path.Base(file)), nil
}

func (n *node) info(name string) fumehood.FileInfo {
	return fumehood.FileInfo{
		Name: name, Size: int64(len(n.data)), Mode: n.mode, ModTime: n.modTime, LinkTarget: n.target, UID: n.uid, GID: n.gid,
	}
}

// files are the sandbox's files as one of its users may use them.
type files struct {
	*box
	cred cred
	err  error // there is no such user
}

// Files returns the files as a user may use them.
func (b *box) Files(user string) fumehood.FileBackend {
	f := files{box: b, cred: b.cred}
	if user != "" {
		f.cred, f.err = b.lookUp(user)
	}
	return f
}

func (f files) Stat(_ context.Context, path string) (fumehood.FileInfo, error) {
	if f.err != nil {
		return fumehood.FileInfo{}, f.err
	}
	return f.fs.stat(f.cred, path, false)
}

func (f files) Open(_ context.Context, file string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error) {
	if f.err != nil {
		return nil, fumehood.FileInfo{}, f.err
	}
	data, err := f.fs.read(f.cred, file)
	if err != nil {
		return nil, fumehood.FileInfo{}, err
	}
	info, err := f.fs.stat(f.cred, file, true)
	if err != nil {
		return nil, fumehood.FileInfo{}, err
	}
	info.Size = int64(len(data)) // of what is read, whatever was written meanwhile
	data = data[min(offset, info.Size):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return io.NopCloser(bytes.NewReader(data)), info, nil
}

// Write writes what it has read to the end, so that nobody ever sees a part.
func (f files) Write(ctx context.Context, path string, r io.Reader, size int64, opts fumehood.WriteOptions) error {
	owner, err := f.owner(opts.Owner)
	if err != nil {
		return err
	}
	data, err := readExactly(r, size)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.fs.write(f.cred, path, data, opts, owner)
}

// owner looks up who a file is to belong to; nil where nobody is named.
func (f files) owner(name string) (*cred, error) {
	if f.err != nil || name == "" {
		return nil, f.err
	}
	c, err := f.lookUp(name)
	return &c, err
}

func readExactly(r io.Reader, size int64) ([]byte, error) {
	var buf bytes.Buffer
	n, err := io.CopyN(&buf, r, size)
	if err != nil {
		return nil, classed(fumehood.ErrConfig, "the reader gave %d bytes of %d: %w", n, size, err)
	}
	return buf.Bytes(), nil
}
