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
	"time"
)

// Options limit what Unpack accepts. A limit that is not positive means none.
type Options struct {
	Bytes   int64 // in all files together, including holes
	Entries int
	// LinksAsText writes a link that can lead out of the tree as a file with the link's target as text. Otherwise such
	// a link is an error.
	LinksAsText bool
	// Skipped is called with files that the archive says it leaves out, and how many there are. Nil ignores them.
	Skipped func(files []SkippedFile, count int)
}

// ErrContent reports a bad archive: not a tar stream, cut short, or with an entry that is never accepted.
var ErrContent = errors.New("bad archive")

// UnpackInto extracts an archive below dest by the names of its entries; dest must exist. Links in it may have any
// target, but nothing is written through a link that leads out of dest. Otherwise it is like Unpack.
func UnpackInto(r io.Reader, dest string) error {
	return unpack(r, dest, unpacker{anyLinks: true})
}

// ErrLimit reports an archive that exceeds a limit: ErrBytes and ErrEntries those of Options, otherwise another one.
var (
	ErrLimit   = errors.New("the archive is too large")
	ErrBytes   = fmt.Errorf("%w", ErrLimit)
	ErrEntries = fmt.Errorf("%w", ErrLimit)
)

// Unpack extracts an untrusted archive below dest, which must exist. The first element must be the same in the names
// of all entries; it is replaced by name. So an archive of one file becomes the file dest/name.
//
// Nothing is written through a link, whoever created it. A link that can lead out of the tree is an error, and so is
// any entry that is not a file, folder or link. Existing files are overwritten, but a file never replaces a folder.
// Modes are kept without set-id and sticky bits; owners are not kept. Pages of zeros become holes.
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
	u.root, u.dir, u.at = root, root, "."
	defer func() { u.moveTo(u.root, ".") }()
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
	dir      *os.Root // the folder of the last entry, and its path; the root with anyLinks
	at       string
	opts     Options
	name     string // replaces the first element of all names; empty keeps the names
	anyLinks bool
	first    string // the first element of all names
	entries  int
	bytes    int64
	dirs     []dirMode
}

// dirMode is the mode and time of a folder. They are set at the end, because files cannot be created in a read-only folder,
// and new files change its time.
type dirMode struct {
	path string
	mode fs.FileMode
	time time.Time
}

// setTime sets when a file or folder was changed. It does nothing for 1970, which stands for no time in an archive, and for
// times that file systems do not have.
func setTime(dir *os.Root, name string, at time.Time) error {
	if s := at.Unix(); s <= 0 || s >= 1<<33 {
		return nil
	}
	return dir.Chtimes(name, at, at)
}

func (u *unpacker) entry(head *tar.Header, content io.Reader) error {
	if u.entries++; u.opts.Entries > 0 && u.entries > u.opts.Entries {
		return fmt.Errorf("%w: more than %d entries", ErrEntries, u.opts.Entries)
	}
	name, err := u.target(head.Name)
	if err != nil {
		return err
	}
	mode := head.FileInfo().Mode().Perm()
	switch head.Typeflag {
	case tar.TypeDir:
		if files, count := ReadSkipped(head); count > 0 && u.opts.Skipped != nil {
			u.opts.Skipped(files, count)
		}
		u.dirs = append(u.dirs, dirMode{name, mode, head.ModTime})
		if name == "." {
			return nil
		}
		return u.enter(name, 0o700)
	case tar.TypeReg:
		return u.file(name, mode, head.ModTime, content, head.Size)
	case tar.TypeSymlink:
		return u.link(name, head.Linkname, head.ModTime)
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
	if first == "" || first != u.first || !filepath.IsLocal(filepath.FromSlash(name)) || rest != "" && (path.Clean(rest) != rest || !filepath.IsLocal(filepath.FromSlash(rest))) {
		return "", fmt.Errorf("%w: the entry %q is outside the tree", ErrContent, entry)
	}
	return filepath.FromSlash(name), nil
}

func (u *unpacker) file(name string, mode fs.FileMode, at time.Time, content io.Reader, size int64) error {
	if u.opts.Bytes > 0 && size > u.opts.Bytes-u.bytes {
		return fmt.Errorf("%w: more than %d bytes, with the %d of %q", ErrBytes, u.opts.Bytes, size, name)
	}
	dir, base, err := u.clear(name)
	if err != nil {
		return err
	}
	f, err := dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(&SparseWriter{File: f}, content)
	if err == nil {
		err = f.Truncate(n) // a hole at the end
	}
	u.bytes += n
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", ErrContent, err)
	}
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return setTime(dir, base, at)
}

// link creates a symbolic link that cannot lead out of the tree; with anyLinks, any link.
func (u *unpacker) link(name, target string, at time.Time) error {
	within, inTree := strings.CutPrefix(filepath.ToSlash(name), u.name+"/")
	// A link in place of the tree itself leads to its siblings.
	if !u.anyLinks && (!inTree || LeadsOut(within, target)) {
		if u.opts.LinksAsText {
			return u.file(name, 0o644, at, strings.NewReader(target), int64(len(target)))
		}
		return fmt.Errorf("%w: the link %q points out of the copied tree, or may, to %q", ErrContent, name, target)
	}
	dir, base, err := u.clear(name)
	if err != nil {
		return err
	}
	return dir.Symlink(filepath.FromSlash(target), base)
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
	if _, _, err := u.clear(name); err != nil {
		return err
	}
	return u.root.Link(file, name)
}

// clear removes an existing file or link at name, and creates missing folders above it. It returns the folder of name,
// and name in it.
func (u *unpacker) clear(name string) (dir *os.Root, base string, err error) {
	if err := u.enter(filepath.Dir(name), 0o755); err != nil {
		return nil, "", err
	}
	dir, base = u.dir, filepath.Base(name)
	if u.anyLinks {
		dir, base = u.root, name
	}
	info, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return dir, base, nil
	case err != nil:
		return nil, "", err
	case info.IsDir():
		return nil, "", &fs.PathError{Op: "replace", Path: name, Err: syscall.EISDIR}
	}
	return dir, base, dir.Remove(base)
}

// maxDepth is how many folders below each other Unpack creates.
const maxDepth = 1000

// enter makes u.dir the folder at name. It creates that and those above it where they are missing. None of them may be a
// link. A folder below the last one is found from there: the time does not grow with the depth. With anyLinks, it only
// creates folders.
func (u *unpacker) enter(name string, mode fs.FileMode) error {
	if u.anyLinks {
		return u.root.MkdirAll(name, mode)
	}
	const sep = string(filepath.Separator)
	if strings.Count(name, sep) >= maxDepth {
		return fmt.Errorf("%w: more than %d folders below each other", ErrLimit, maxDepth)
	}
	rest, below := name, false
	if u.at != "." {
		if name == u.at {
			return nil
		}
		rest, below = strings.CutPrefix(name, u.at+sep)
	}
	if !below {
		u.moveTo(u.root, ".")
	}
	if rest == "." {
		return nil
	}
	for part := range strings.SplitSeq(rest, sep) {
		if err := u.descend(filepath.Join(u.at, part), part, name, mode); err != nil {
			return err
		}
	}
	return nil
}

// descend makes u.dir its folder base, which is at path, on the way to name.
func (u *unpacker) descend(path, base, name string, mode fs.FileMode) error {
	info, err := u.dir.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		if err := u.dir.Mkdir(base, mode); err != nil {
			return err
		}
		info, err = u.dir.Lstat(base)
	}
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: %q would be written through the link %q", ErrContent, name, path)
	case !info.IsDir():
		return &fs.PathError{Op: "enter", Path: path, Err: errors.New("not a folder")}
	}
	dir, err := u.dir.OpenRoot(base)
	if err != nil {
		return err
	}
	u.moveTo(dir, path)
	if now, err := dir.Stat("."); err != nil || !os.SameFile(info, now) {
		return errors.Join(err, fmt.Errorf("%w: %q was replaced meanwhile", ErrContent, path))
	}
	return nil
}

// moveTo makes u.dir another folder, which is at path.
func (u *unpacker) moveTo(dir *os.Root, path string) {
	if u.dir != u.root {
		u.dir.Close()
	}
	u.dir, u.at = dir, path
}

func (u *unpacker) finish() error {
	if u.entries == 0 && u.name != "" {
		return fmt.Errorf("%w: no entries", ErrContent)
	}
	for i := len(u.dirs) - 1; i >= 0; i-- {
		d := u.dirs[i]
		if d.path == "." {
			continue // the destination existed before
		}
		if err := errors.Join(u.root.Chmod(d.path, d.mode), setTime(u.root, d.path, d.time)); err != nil {
			return err
		}
	}
	return nil
}
