package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/fumehood/fumehood"
)

// Upload extracts a tar stream. Links in it are made, and never extracted through.
func (f files) Upload(ctx context.Context, dir string, archive io.Reader) error {
	if f.err != nil {
		return f.err
	}
	f.fs.mu.Lock()
	n, err := f.fs.existing(f.cred, dir, true)
	if err == nil && !n.mode.IsDir() {
		err = classed(fumehood.ErrNotDirectory, "not a directory")
	}
	f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	for tr := tar.NewReader(archive); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, archive) // so that who writes it is not left hanging
			return err
		}
		if err != nil {
			return classed(fumehood.ErrConfig, "read the archive: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f.extract(dir, h, tr); err != nil {
			return fmt.Errorf("extract %s: %w", h.Name, err)
		}
	}
}

func (f files) extract(dir string, h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
		return classed(fumehood.ErrConfig, "the name leads out of the directory")
	}
	if err := f.noLinkIn(dir, name); err != nil {
		return err
	}
	file := dir + "/" + name
	perm := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := f.fs.mkdirAll(f.cred, file); err != nil {
			return err
		}
		f.fs.chmod(file, perm)
		return nil
	case tar.TypeReg:
		data, err := io.ReadAll(r)
		if err != nil {
			return classed(fumehood.ErrConfig, "read the archive: %w", err)
		}
		return f.fs.write(f.cred, file, data, fumehood.WriteOptions{Mode: perm}, nil)
	case tar.TypeSymlink:
		f.fs.mu.Lock()
		err := f.fs.parents(f.cred, file)
		f.fs.mu.Unlock()
		if err != nil {
			return err
		}
		return f.fs.symlink(f.cred, h.Linkname, file)
	}
	return classed(fumehood.ErrUnsupported, "the fake provider extracts files, directories and links only, not type %q", h.Typeflag)
}

// noLinkIn refuses a name that leads through a link below dir.
func (f files) noLinkIn(dir, name string) error {
	at := dir
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		at += "/" + part
		if info, err := f.fs.stat(f.cred, at, false); err == nil && info.Mode.Type() == fs.ModeSymlink {
			return classed(fumehood.ErrConfig, "the name leads through the link %s", at)
		}
	}
	return nil
}

// Download returns the tree as it is now.
func (f files) Download(_ context.Context, file string) (io.ReadCloser, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.fs.existing(f.cred, file, true)
	if err != nil {
		return nil, err
	}
	var all []packed
	if err := f.pack(n, path.Base(file), &all); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(writeTar(w, all))
	}()
	return download{r, done}, nil
}

// download is an archive as it is written. Close ends the writing.
type download struct {
	*io.PipeReader
	done chan struct{}
}

func (d download) Close() error {
	err := d.PipeReader.Close()
	<-d.done
	return err
}

// packed is one entry to be; its data may be kept, see node.
type packed struct {
	header *tar.Header
	data   []byte
}

func (f files) pack(n *node, name string, into *[]packed) error {
	h := &tar.Header{Name: name, Mode: int64(n.mode.Perm()), ModTime: n.modTime, Uid: n.uid, Gid: n.gid, Format: tar.FormatPAX}
	switch {
	case n.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case n.mode.Type() == fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, n.target
	case !n.mode.IsRegular():
		return classed(fumehood.ErrNotRegular, "%s is no file, directory or link, and cannot be copied", name)
	default:
		h.Typeflag, h.Size = tar.TypeReg, int64(len(n.data))
	}
	if n.mode.Type() != fs.ModeSymlink && !n.allows(f.cred, mayRead) {
		return classed(fumehood.ErrPermission, "%s: permission denied", name)
	}
	*into = append(*into, packed{h, n.data})
	for _, child := range n.children() {
		if err := f.pack(n.entries[child], name+"/"+child, into); err != nil {
			return err
		}
	}
	return nil
}

func writeTar(w io.Writer, files []packed) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		if err := tw.WriteHeader(f.header); err != nil {
			return err
		}
		if _, err := io.Copy(tw, bytes.NewReader(f.data)); err != nil {
			return err
		}
	}
	return tw.Close()
}
