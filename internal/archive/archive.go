// Package archive packs folders into tar streams and unpacks untrusted tar streams.
package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
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
	var link string
	switch mode := info.Mode(); {
	case mode.IsDir():
		name += "/"
	case mode&fs.ModeSymlink != 0:
		if link, err = os.Readlink(file); err != nil {
			return err
		}
	case !mode.IsRegular():
		return fmt.Errorf("%w: %s is a %s, which cannot be copied", ErrNotRegular, file, Kind(mode))
	}
	head, err := tar.FileInfoHeader(info, filepath.ToSlash(link))
	if err != nil {
		return err
	}
	head.Name, head.Format = name, tar.FormatPAX
	head.Uid, head.Gid, head.Uname, head.Gname = 0, 0, "", "" // the host's users have no meaning elsewhere
	edit(head)
	if err := tw.WriteHeader(head); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := OpenRegular(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(tw, io.LimitReader(f, head.Size)); err != nil { // it may have grown
		return err
	}
	return tw.Flush() // fails if the file has shrunk
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
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", file, limit)
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

// Options limit what Unpack accepts. Zero means no limit.
type Options struct {
	Bytes   int64 // in all files together
	Entries int
	// LinksAsText writes a link that can lead out of the tree as a file with the link's target as text. Otherwise such
	// a link is an error.
	LinksAsText bool
}

// ErrContent reports a bad archive: not a tar stream, cut short, or with an entry that is never accepted.
var ErrContent = errors.New("bad archive")

// UnpackInto extracts an archive below dest by the names of its entries; dest must exist. Links in it may have any
// target, but nothing is written through a link that leads out of dest. Otherwise it is like Unpack.
func UnpackInto(r io.Reader, dest string) error {
	return unpack(r, dest, unpacker{anyLinks: true})
}

// ErrLimit reports an archive that exceeds the limits.
var ErrLimit = errors.New("the archive is too large")

// Unpack extracts an untrusted archive below dest, which must exist. The first element must be the same in the names
// of all entries; it is replaced by name. So an archive of one file becomes the file dest/name.
//
// Nothing is written through a link, whoever created it. A link that can lead out of the tree is an error, and so is
// any entry that is not a file, folder or link. Existing files are overwritten, but a file never replaces a folder.
// Modes are kept without set-id and sticky bits; owners are not kept.
func Unpack(r io.Reader, dest, name string, opts Options) error {
	return unpack(r, dest, unpacker{opts: opts, name: name})
}

// AwaitForks waits until the processes that this one is starting run their own programs. Before, they have the files
// open that this process had when they were forked. A program that is open for writing cannot be executed (ETXTBSY),
// so what writes programs calls this after closing them. It does not wait for processes in new user namespaces.
func AwaitForks() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}

func unpack(r io.Reader, dest string, u unpacker) error {
	root, err := os.OpenRoot(dest)
	if err != nil {
		return err
	}
	defer root.Close()
	u.root = root
	tr := tar.NewReader(r)
	for {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			err = u.finish()
			AwaitForks()
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrContent, err)
		}
		if err := u.entry(head, tr); err != nil {
			return err
		}
	}
}

type unpacker struct {
	root     *os.Root
	opts     Options
	name     string // replaces the first element of all names; empty keeps the names
	anyLinks bool
	first    string // the first element of all names
	entries  int
	bytes    int64
	dirs     []dirMode
}

// dirMode is the mode of a folder. It is set at the end, because files cannot be created in a read-only folder.
type dirMode struct {
	path string
	mode fs.FileMode
}

func (u *unpacker) entry(head *tar.Header, content io.Reader) error {
	if u.entries++; u.opts.Entries > 0 && u.entries > u.opts.Entries {
		return fmt.Errorf("%w: more than %d entries", ErrLimit, u.opts.Entries)
	}
	name, err := u.target(head.Name)
	if err != nil {
		return err
	}
	mode := head.FileInfo().Mode().Perm()
	switch head.Typeflag {
	case tar.TypeDir:
		u.dirs = append(u.dirs, dirMode{name, mode})
		if name == "." {
			return nil
		}
		return u.folder(name, 0o700)
	case tar.TypeReg:
		return u.file(name, mode, content, head.Size)
	case tar.TypeSymlink:
		return u.link(name, head.Linkname)
	case tar.TypeLink:
		if u.anyLinks {
			return u.hardLink(name, head.Linkname)
		}
	}
	return fmt.Errorf("%w: %q is neither a file, a folder nor a link, and is not extracted", ErrContent, head.Name)
}

// target maps an entry's name to a path below the root.
func (u *unpacker) target(entry string) (string, error) {
	plain := strings.TrimSuffix(strings.TrimPrefix(entry, "./"), "/")
	if u.name == "" {
		if plain == "" {
			plain = "."
		}
		if !filepath.IsLocal(filepath.FromSlash(plain)) {
			return "", fmt.Errorf("%w: the entry %q is outside the tree", ErrContent, entry)
		}
		return filepath.FromSlash(path.Clean(plain)), nil
	}
	first, rest, _ := strings.Cut(plain, "/")
	if u.first == "" {
		u.first = first
	}
	name := path.Join(u.name, rest)
	if first == "" || first != u.first || !filepath.IsLocal(filepath.FromSlash(name)) || rest != "" && path.Clean(rest) != rest {
		return "", fmt.Errorf("%w: the entry %q is outside the tree", ErrContent, entry)
	}
	return filepath.FromSlash(name), nil
}

func (u *unpacker) file(name string, mode fs.FileMode, content io.Reader, size int64) error {
	if u.opts.Bytes > 0 && size > u.opts.Bytes-u.bytes {
		return fmt.Errorf("%w: more than %d bytes, with the %d of %q", ErrLimit, u.opts.Bytes, size, name)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, content)
	u.bytes += n
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", ErrContent, err)
	}
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// link creates a symbolic link that cannot lead out of the tree; with anyLinks, any link.
func (u *unpacker) link(name, target string) error {
	within, inTree := strings.CutPrefix(filepath.ToSlash(name), u.name+"/")
	// A link in place of the tree itself leads to its siblings.
	if !u.anyLinks && (!inTree || LeadsOut(within, target)) {
		if u.opts.LinksAsText {
			return u.file(name, 0o644, strings.NewReader(target), int64(len(target)))
		}
		return fmt.Errorf("%w: the link %q points out of the copied tree, or may, to %q", ErrContent, name, target)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Symlink(filepath.FromSlash(target), name)
}

// LeadsOut reports whether a symbolic link at name can lead out of its tree. Only ".." elements at the beginning of
// the target are safe, because only folders are above a link. An element further down may be a link, and then a
// following ".." leads elsewhere.
func LeadsOut(name, target string) bool {
	depth := strings.Count(name, "/")
	rest := filepath.ToSlash(target)
	for ; rest == ".." || strings.HasPrefix(rest, "../"); depth-- {
		rest = strings.TrimLeft(rest[len(".."):], "/")
	}
	return depth < 0 || strings.HasPrefix(rest, "/") || filepath.IsAbs(target) || strings.Contains("/"+rest+"/", "/../")
}

// hardLink creates another name of a file below the root.
func (u *unpacker) hardLink(name, entry string) error {
	file, err := u.target(entry)
	if err != nil {
		return err
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Link(file, name)
}

// clear removes an existing file or link at name, and creates missing folders above it.
func (u *unpacker) clear(name string) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := u.folder(dir, 0o755); err != nil {
			return err
		}
	}
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "replace", Path: name, Err: syscall.EISDIR}
	}
	return u.root.Remove(name)
}

// folder creates a folder and missing folders above it. Without anyLinks, none of them may be a link.
func (u *unpacker) folder(name string, mode fs.FileMode) error {
	if u.anyLinks {
		return u.root.MkdirAll(name, mode)
	}
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != filepath.Separator {
			continue
		}
		info, err := u.root.Lstat(name[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = u.root.Mkdir(name[:i], mode)
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			err = fmt.Errorf("%w: %q would be written through the link %q", ErrContent, name, name[:i])
		case err == nil && !info.IsDir():
			err = &fs.PathError{Op: "enter", Path: name[:i], Err: errors.New("not a folder")}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) finish() error {
	if u.entries == 0 && u.name != "" {
		return fmt.Errorf("%w: no entries", ErrContent)
	}
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if u.dirs[i].path == "." {
			continue // the destination existed before
		}
		if err := u.root.Chmod(u.dirs[i].path, u.dirs[i].mode); err != nil {
			return err
		}
	}
	return nil
}
