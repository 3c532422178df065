package guest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/archive"
	"github.com/fumehood/fumehood/internal/files"
	"github.com/fumehood/fumehood/internal/wire"
)

// file does what the host asks for with a file, with this process's user and rights.
func (g *guest) file(s *wire.Stream, req *wire.File) {
	path := string(req.Path)
	var err error
	switch req.Op {
	case wire.Stat:
		err = fileStat(s, path)
	case wire.Identify:
		err = fileIdentify(s, path)
	case wire.Read:
		err = fileRead(s, path, req.Offset, req.Length)
	case wire.Write:
		err = fileWrite(s, path, req)
	case wire.Walk:
		err = fileWalk(s, path, req.Depth)
	case wire.Upload:
		err = fileUpload(s, path)
	case wire.Download:
		err = fileDownload(s, path)
	default:
		if err = fileChange(path, req); err == nil {
			answer(s, wire.FileReply{})
		}
	}
	if err != nil {
		answer(s, wire.FileReply{Failed: fileError(err)})
	}
}

// fileChange does what needs no content.
func fileChange(path string, req *wire.File) error {
	switch req.Op {
	case wire.Mkdir:
		return files.Mkdir(path, fs.FileMode(req.Mode), req.All)
	case wire.Remove:
		return files.Remove(path, req.All)
	case wire.Rename:
		return files.Rename(path, string(req.Target))
	case wire.Symlink:
		return os.Symlink(string(req.Target), path)
	case wire.Chmod:
		return os.Chmod(path, fs.FileMode(req.Mode))
	case wire.Chown:
		uid, gid, err := files.Owner(string(req.Owner))
		if err != nil {
			return err
		}
		return files.Chown(path, uid, gid, req.All)
	}
	return fmt.Errorf("there is no operation %q", req.Op)
}

// answer sends v as a message. What it says in words about names must be clipped, see wire.Clip.
func answer(s *wire.Stream, v any) {
	if text, err := json.Marshal(v); err == nil {
		_ = s.SendMessage(text) // a host that is gone needs no answer
	}
}

func fileError(err error) *wire.FileError {
	f := &wire.FileError{
		Text: err.Error(), NotRegular: errors.Is(err, archive.ErrNotRegular), BadContent: errors.Is(err, archive.ErrContent),
		NoUser: errors.Is(err, files.ErrNoUser),
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		f.Errno, f.Text = int(errno), files.Cause(err).Error()
	}
	f.Text = wire.Clip(f.Text)
	return f
}

func describe(info fs.FileInfo, link string) *wire.FileInfo {
	uid, gid := files.OwnerOf(info)
	i := &wire.FileInfo{
		Mode: uint32(info.Mode()), ModTime: info.ModTime().UnixNano(), Link: []byte(link),
		UID: uint32(uid), GID: uint32(gid), //nolint:gosec // the kernel's numbers
	}
	if info.Mode().IsRegular() {
		i.Size = info.Size()
	}
	return i
}

func fileStat(s *wire.Stream, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	answer(s, wire.FileReply{Info: describe(info, link)})
	return nil
}

func fileIdentify(s *wire.Stream, path string) error {
	boot, err := os.ReadFile(wire.BootID)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	answer(s, wire.FileReply{ID: &wire.FileID{Boot: strings.TrimSpace(string(boot)), Device: st.Dev, Inode: st.Ino}})
	return nil
}

// channelWriter sends what is written on a channel.
type channelWriter struct {
	s       *wire.Stream
	channel byte
}

func (w channelWriter) Write(p []byte) (int, error) {
	if err := w.s.Send(w.channel, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func fileRead(s *wire.Stream, path string, offset, length int64) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return unix.EISDIR
	}
	f, err := archive.OpenRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if offset > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return err
		}
	}
	answer(s, wire.FileReply{Info: describe(info, "")})
	var r io.Reader = struct{ io.Reader }{f}
	if length >= 0 {
		r = io.LimitReader(f, length)
	}
	// In pieces that fill a frame.
	if _, err := io.CopyBuffer(channelWriter{s, wire.Stdout}, r, make([]byte, wire.MaxData-1)); err != nil {
		return madeUp(f, err)
	}
	return s.SendEnd(wire.Stdout)
}

// madeUp tells an error of reading a file that the kernel makes up, such as /proc/self/mem, from one of a disk.
func madeUp(f *os.File, err error) error {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return err
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return fmt.Errorf("%w: the kernel makes it up, and says: %v", archive.ErrNotRegular, err) //nolint:errorlint // it is no fault of ours
	}
	return err
}

// writeSize is as much as a file system in user space takes at once, in half the time of eight writes.
const writeSize = 1 << 20

// content reads what the host sends until its end. A stream that breaks off is an error.
func content(s *wire.Stream) *wire.Content {
	return &wire.Content{Stream: s, Channel: wire.Stdin, Wrong: func(_ wire.Event, err error) error {
		return fmt.Errorf("%w: %s", errBrokenOff, cmp.Or(err, errNoContent).Error()) // no io.EOF, which would be the end of the content
	}}
}

// writeContent writes what the host sends to f: what came in one piece as it is, more of it by writeSize.
func writeContent(f *os.File, c *wire.Content) error {
	first, err := c.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	second, err := c.Next()
	if errors.Is(err, io.EOF) {
		_, err = f.Write(first.Payload)
		return err
	}
	buf := bufio.NewWriterSize(fastWriter(f), writeSize)
	put := func(piece wire.Event) error {
		_, err := buf.Write(piece.Payload)
		c.Stream.Consumed(len(piece.Payload))
		piece.Recycle()
		return err
	}
	if err := put(first); err != nil {
		return err
	}
	for piece := second; err == nil; piece, err = c.Next() {
		if err := put(piece); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		return buf.Flush()
	}
	return err
}

// uncached writes to a file in a file system of user space, as a container's is by the driver fuse-overlayfs, which is
// handed what is written as it comes, with no copy in the kernel's cache: that keeps it back until there is too much of
// it, where writes wait for one another, and the file system's own files are cached once more below it.
type uncached struct {
	f     *os.File
	usual int // the flags of f, while it has one more
}

// fastWriter is f, or an uncached for it.
func fastWriter(f *os.File) io.Writer {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil || st.Type != unix.FUSE_SUPER_MAGIC {
		return f
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err != nil {
		return f
	}
	return &uncached{f: f, usual: flags}
}

// Write writes by the cache what fails without it: a full disk may be an EIO there.
func (w *uncached) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if err == nil || w.usual < 0 {
		return n, err
	}
	if _, ferr := unix.FcntlInt(w.f.Fd(), unix.F_SETFL, w.usual); ferr != nil {
		return n, err
	}
	w.usual = -1
	m, err := w.f.Write(p[n:])
	return n + m, err
}

var (
	errBrokenOff = errors.New("the host broke off")
	errNoContent = errors.New("it sent something else than content")
)

func fileWrite(s *wire.Stream, path string, req *wire.File) error {
	opts := files.Options{Mode: fs.FileMode(req.Mode), UID: -1, GID: -1, Atomic: req.Atomic}
	var err error
	if len(req.Owner) > 0 {
		if opts.UID, opts.GID, err = files.Owner(string(req.Owner)); err != nil {
			return err
		}
	}
	f, err := files.Create(path, opts)
	if err != nil {
		return err
	}
	answer(s, wire.FileReply{})
	err = writeContent(f.File, content(s))
	if err = f.Finish(err); err != nil {
		return err
	}
	answer(s, wire.FileReply{})
	return nil
}

// fileWalk sends what a walk meets.
func fileWalk(s *wire.Stream, root string, depth int) error {
	if _, err := os.Lstat(root); err != nil {
		return err
	}
	answer(s, wire.FileReply{})
	out := bufio.NewWriterSize(channelWriter{s, wire.Stdout}, wire.MaxData-1)
	lines := json.NewEncoder(out)
	err := files.Walk(root, depth, func(e files.Entry) error {
		line := wire.WalkEntry{Path: []byte(e.Path)}
		if e.Info != nil {
			line.Info = describe(e.Info, e.Link)
		}
		if e.Err != nil {
			line.Failed = fileError(e.Err)
		}
		return lines.Encode(line)
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	return s.SendEnd(wire.Stdout)
}

func fileUpload(s *wire.Stream, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return unix.ENOTDIR
	}
	answer(s, wire.FileReply{})
	in := content(s)
	if err := archive.UnpackInto(in, dir); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // padding behind the archive
		return err
	}
	answer(s, wire.FileReply{})
	return nil
}

func fileDownload(s *wire.Stream, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	answer(s, wire.FileReply{Info: describe(info, "")})
	if err := archive.Pack(channelWriter{s, wire.Stdout}, path, info.Name()); err != nil {
		return err
	}
	return s.SendEnd(wire.Stdout)
}
