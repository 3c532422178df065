// Package archive packs folders into tar streams and unpacks untrusted tar streams.
package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Pack writes the file or tree at root to w, as an archive whose first entry has the given name. Links are packed as
// links. Sockets, devices and pipes are an error, because they cannot be copied.
func Pack(w io.Writer, root, name string) error {
	tw := tar.NewWriter(w)
	if err := Add(tw, root, name, func(*tar.Header) {}); err != nil {
		return err
	}
	return tw.Close()
}

// Add adds the file or tree at root to an archive, as Pack does. edit may change each header before it is written,
// except its size.
func Add(tw *tar.Writer, root, name string, edit func(*tar.Header)) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		return packOne(tw, file, path.Join(name, filepath.ToSlash(rel)), d, edit)
	})
}

func packOne(tw *tar.Writer, file, name string, d fs.DirEntry, edit func(*tar.Header)) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(file); err != nil {
			return err
		}
	}
	return Found{Path: file, Info: info, Link: link, Open: func() (*os.File, error) { return OpenRegular(file) }}.addMember(tw, name, edit)
}

// Found is a file that a walk has found.
type Found struct {
	Path string // for errors
	Info fs.FileInfo
	Link string                   // the target of a link
	Open func() (*os.File, error) // opens a regular file
}

// AddTo adds a file to an archive, as Pack does. It returns the header.
func (f Found) AddTo(tw *tar.Writer, name string) (head tar.Header, err error) {
	err = f.addMember(tw, name, func(h *tar.Header) { head = *h })
	return head, err
}

func (f Found) addMember(tw *tar.Writer, name string, edit func(*tar.Header)) error {
	switch mode := f.Info.Mode(); {
	case mode.IsDir():
		name += "/"
	case mode&fs.ModeSymlink == 0 && !mode.IsRegular():
		return fmt.Errorf("%w: %s is a %s, which cannot be copied", ErrNotRegular, f.Path, Kind(mode))
	}
	head, err := tar.FileInfoHeader(f.Info, filepath.ToSlash(f.Link))
	if err != nil {
		return err
	}
	head.Name, head.Format = name, tar.FormatPAX
	head.Uid, head.Gid, head.Uname, head.Gname = 0, 0, "", "" // the host's users have no meaning elsewhere
	edit(head)
	if !f.Info.Mode().IsRegular() {
		return tw.WriteHeader(head)
	}
	file, err := f.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	return packContent(tw, head, file)
}

// openFile is an *os.File, except in tests.
type openFile interface {
	io.Reader
	Stat() (fs.FileInfo, error)
	Name() string
}

const (
	// readFirst is the size in bytes up to which a file is read before its header is written.
	readFirst = 64 << 10
	// maxUnsized is the largest file in bytes that is packed if its size is not known: the kernel's own files.
	maxUnsized = 16 << 20
)

// packContent writes a file's header and content. A file of at most readFirst bytes gets what reading it to its end
// returns, whatever its size is said to be: the kernel says 0 or 4096 of its own files. A larger file gets as many bytes
// as it has when it is opened. If it is shorter by then, zeros are in the place of the rest, and it returns ErrChanged.
func packContent(tw *tar.Writer, head *tar.Header, f openFile) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head.Size = info.Size()
	var start []byte
	if head.Size <= readFirst {
		if start, err = io.ReadAll(io.LimitReader(f, maxUnsized+1)); err != nil {
			return err
		}
		if info, err = f.Stat(); err != nil {
			return err
		}
		if len(start) > maxUnsized && info.Size() < maxUnsized { // otherwise it has grown meanwhile
			return fmt.Errorf("%w: %s has more than %d bytes and no size", ErrNotRegular, f.Name(), maxUnsized)
		}
		head.Size = int64(len(start))
	}
	if err := tw.WriteHeader(head); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(io.MultiReader(bytes.NewReader(start), f), head.Size))
	if err == nil && n < head.Size {
		for ; err == nil && n < head.Size; n += page {
			_, err = tw.Write(zeros[:min(page, head.Size-n)])
		}
		if err == nil {
			err = fmt.Errorf("%w: %s has become shorter than %d bytes while it was read", ErrChanged, f.Name(), head.Size)
		}
	}
	return err
}

// Pipe connects write and read by a pipe and runs both. When read returns, further writes fail; an error of write is
// returned to read. Pipe returns the error that occurred first.
func Pipe(write func(io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		wrote <- err
	}()
	rerr := read(r)
	r.CloseWithError(errReader)
	if err := <-wrote; err != nil && !errors.Is(err, errReader) {
		return err
	}
	return rerr
}

var errReader = errors.New("the reader of the pipe has ended")

// Whole returns a reader for Pipe that reads the stream to its end after read has returned. An archive's end is
// followed by padding, or by the writer's error.
func Whole(read func(io.Reader) error) func(io.Reader) error {
	return func(r io.Reader) error {
		err := read(r)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	}
}

// ErrNotRegular reports a path that is a socket, a device or a pipe, or a directory instead of a file.
var ErrNotRegular = errors.New("not a regular file")

// ErrChanged reports a file that became shorter while it was packed. The archive can go on.
var ErrChanged = errors.New("the file was changed")

// OpenRegular opens a regular file for reading. It rejects all others, because opening a pipe or a device may block or
// have side effects.
func OpenRegular(file string) (*os.File, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: file, Err: ErrNotRegular}
	}
	return Regular(os.OpenFile(file, os.O_RDONLY|NonBlock, 0)) // something else may be there by now
}

// Regular returns a file that was opened with NonBlock, unless it is not a regular file.
func Regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(file string, limit int64) ([]byte, error) {
	f, err := OpenRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tooLarge := fmt.Errorf("%s is larger than %d bytes", file, limit)
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		return nil, tooLarge // without reading as much, which can take seconds
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may have more than it says
	if err == nil && int64(len(content)) > limit {
		err = tooLarge
	}
	return content, err
}

// Kind returns the kind of a file that is neither a regular file nor a folder.
func Kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "link"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	}
	return "device"
}
