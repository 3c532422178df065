package engine

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/archive"
)

// maxLinks is how many links are followed for one path, as Linux has it (MAXSYMLINKS).
const maxLinks = 40

// errLoop is the kernel's ELOOP.
var errLoop error = &fumehood.Error{Class: fumehood.ErrNotFound, Err: errors.New("too many levels of symbolic links")}

func fileError(class error) error { return &fumehood.Error{Class: class} }

// fileFailure gives an error of the Engine's archive calls a class.
func (c *Client) fileFailure(ctx context.Context, container string, err error) error {
	if errors.Is(err, fumehood.ErrNotRegular) { // of copyFrom
		return err
	}
	switch text := strings.ToLower(err.Error()); {
	case ctx.Err() != nil:
		return c.translate(ctx.Err(), "")
	case strings.Contains(text, "too many links"), strings.Contains(text, "too many levels of symbolic links"):
		return errLoop
	case strings.Contains(text, "not a directory"), strings.Contains(text, "cannot overwrite non-directory"):
		return fileError(fumehood.ErrNotDirectory)
	case strings.Contains(text, "path escapes from parent"), strings.Contains(text, "invalid entry name"),
		strings.Contains(text, "invalid hardlink target"), strings.Contains(text, "invalid symlink"), strings.Contains(text, "is outside of"):
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("an entry of the archive leads out of the directory")}
	case strings.Contains(text, "marked read-only"), strings.Contains(text, "read-only file system"):
		return &fumehood.Error{Class: fumehood.ErrPermission, Err: errors.New("the file system is read-only")}
	case strings.Contains(text, "invalid tar header"), strings.Contains(text, "unexpected eof"):
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("the content is no complete tar archive")}
	case strings.Contains(text, "file name too long"):
		return &fumehood.Error{Class: fumehood.ErrLimit, Err: errors.New("file name too long")}
	case strings.Contains(text, "no space left on device"):
		return &fumehood.Error{Class: fumehood.ErrLimit, Err: errors.New("no space left in the sandbox")}
	case strings.Contains(text, "cannot overwrite directory"):
		return fileError(fumehood.ErrIsDirectory)
	}
	if errdefs.IsNotFound(err) {
		state, serr := c.Inspect(ctx, container)
		switch {
		case serr != nil:
			return serr
		case !state.Running:
			return state.Unavailable()
		}
		return fileError(fumehood.ErrNotFound)
	}
	return c.gone(ctx, container, err, "")
}

// Stat describes a path in a container without following a link at its end. The Engine resolves the
// path inside the container's root, so that no link leads out of it.
func (c *Client) Stat(ctx context.Context, container, name string) (fumehood.FileInfo, error) {
	info, err := c.stat(ctx, container, name)
	if err != nil || info.Mode&fs.ModeSymlink == 0 {
		return info, err
	}
	// The Engine tells where the link leads to in the end; what is written in it is in its archive.
	res, err := c.copyFrom(ctx, container, name)
	if err != nil {
		return info, c.fileFailure(ctx, container, err)
	}
	defer res.Content.Close()
	head, err := tar.NewReader(res.Content).Next()
	if err != nil {
		return info, c.translate(err, "")
	}
	info.LinkTarget = head.Linkname
	return info, nil
}

// stat is Stat with the absolute path that a link leads to in the end as its target.
func (c *Client) stat(ctx context.Context, container, name string) (fumehood.FileInfo, error) {
	if err := visible(name); err != nil {
		return fumehood.FileInfo{}, err
	}
	res, err := c.api.ContainerStatPath(ctx, container, client.ContainerStatPathOptions{Path: name})
	if err != nil && errdefs.IsInternal(err) {
		// The answer to HEAD has no body, and so no reason. GET gives it.
		got, gerr := c.copyFrom(ctx, container, name)
		if gerr == nil {
			_ = got.Content.Close()
			res.Stat, err = got.Stat, nil
		} else {
			err = gerr
		}
	}
	if err != nil {
		return fumehood.FileInfo{}, c.fileFailure(ctx, container, err)
	}
	info := fumehood.FileInfo{
		Name: res.Stat.Name, Mode: res.Stat.Mode, ModTime: res.Stat.Mtime, LinkTarget: res.Stat.LinkTarget,
		UID: -1, GID: -1, // the Engine does not tell
	}
	if info.Mode.IsRegular() {
		info.Size = res.Stat.Size
	}
	return info, nil
}

// lookups are the files in which the Engine looks up users when it makes an archive: those of the container, in its root.
var lookups = []string{"/etc/passwd", "/etc/group", "/etc/nsswitch.conf"}

// copyFrom begins an archive of a path. The Engine would wait for ever at one of lookups that is a pipe, with the container
// locked, so that nobody could look at it or remove it any more: such a container's files are not read. That is certain
// only while nothing in it runs that puts one there meanwhile.
func (c *Client) copyFrom(ctx context.Context, container, name string) (client.CopyFromContainerResult, error) {
	for _, file := range lookups {
		if err := c.checkLookup(ctx, container, file); err != nil {
			return client.CopyFromContainerResult{}, err
		}
	}
	return c.api.CopyFromContainer(ctx, container, client.CopyFromContainerOptions{SourcePath: name})
}

func (c *Client) checkLookup(ctx context.Context, container, file string) error {
	res, err := c.api.ContainerStatPath(ctx, container, client.ContainerStatPathOptions{Path: file})
	if err == nil && res.Stat.Mode&fs.ModeSymlink != 0 { // the Engine tells where it leads to in the end
		res, err = c.api.ContainerStatPath(ctx, container, client.ContainerStatPathOptions{Path: res.Stat.LinkTarget})
	}
	switch mode := res.Stat.Mode; { // what cannot be reached, as in a folder that is none, the Engine does not open either
	case errdefs.IsNotFound(err), errdefs.IsInternal(err), err == nil && (mode.IsRegular() || mode.IsDir()):
		return nil
	case err == nil:
		return &fumehood.Error{
			Class: fumehood.ErrNotRegular, Err: fmt.Errorf("the Engine would wait for ever at the container's %s, which is a %s", file, archive.Kind(mode)),
			Hint: "make it a regular file, or read files by the guest",
		}
	}
	return err
}

// CheckRegular refuses what is at a path of a container, at the end of its links, and is no regular file, or one of more than most
// bytes. What is not there passes; what the Engine cannot see, as in a tmpfs, is an ErrUnsupported.
func (c *Client) CheckRegular(ctx context.Context, container, name string, most int64) error {
	s, err := c.Inspect(ctx, container)
	if err != nil {
		return err
	}
	var info fumehood.FileInfo
	dir, _, err := c.resolve(ctx, container, path.Dir(name))
	name = path.Join(dir, path.Base(name))
	if err == nil {
		name, info, err = c.resolve(ctx, container, name)
	}
	for _, m := range s.Mounts {
		if m.Source == "" && below(name, path.Clean(m.At)) {
			return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the Engine does not see what is mounted at %s", m.At)}
		}
	}
	switch {
	case errors.Is(err, fumehood.ErrNotFound):
		return nil
	case err != nil:
		return err
	case info.Size > most:
		return &fumehood.Error{Class: fumehood.ErrTooLarge, Err: fmt.Errorf("%s has %d bytes, and %d are the limit", name, info.Size, most)}
	}
	return wantRegular(info.Mode)
}

// hidden are the file systems that a container has only while it runs. The Engine's archive calls do not
// see them, but what the image has below them: they would read, and write, another file than a program
// in the container does.
var hidden = []string{"/dev", "/proc", "/sys"}

func visible(name string) error {
	clean := path.Clean(name)
	for _, dir := range hidden {
		if clean == dir || strings.HasPrefix(clean, dir+"/") {
			return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the engine transport does not see what is mounted at %s", dir)}
		}
	}
	return nil
}

// resolve follows links at the end of name until something else is there.
func (c *Client) resolve(ctx context.Context, container, name string) (string, fumehood.FileInfo, error) {
	for range maxLinks {
		info, err := c.stat(ctx, container, name)
		if err != nil {
			return name, info, err
		}
		if info.Mode&fs.ModeSymlink == 0 {
			return name, info, nil
		}
		if info.LinkTarget == "" || info.LinkTarget == name {
			break
		}
		name = info.LinkTarget // absolute inside the container: the Engine has resolved it
		if !path.IsAbs(name) {
			return name, info, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the Engine reports the relative link target %q", name)}
		}
	}
	return name, fumehood.FileInfo{}, errLoop
}

// Open reads a regular file.
func (c *Client) Open(ctx context.Context, container, name string) (io.ReadCloser, fumehood.FileInfo, error) {
	name, info, err := c.resolve(ctx, container, name)
	if err != nil {
		return nil, info, err
	}
	if err := wantRegular(info.Mode); err != nil {
		return nil, info, err
	}
	res, err := c.copyFrom(ctx, container, name)
	if err != nil {
		return nil, info, c.fileFailure(ctx, container, err)
	}
	// The sandbox may have put something else there meanwhile: what counts is what is in the archive.
	tr := tar.NewReader(res.Content)
	head, err := tr.Next()
	if err == nil {
		err = wantRegular(head.FileInfo().Mode())
	}
	if err != nil {
		_ = res.Content.Close()
		return nil, info, c.translate(err, "")
	}
	info.Size = head.Size
	return archived{c: c, Reader: tr, Closer: res.Content}, info, nil
}

func wantRegular(mode fs.FileMode) error {
	switch {
	case mode.IsDir():
		return fileError(fumehood.ErrIsDirectory)
	case !mode.IsRegular():
		return fileError(fumehood.ErrNotRegular)
	}
	return nil
}

// archived is an open file inside an archive stream.
type archived struct {
	c *Client
	io.Reader
	io.Closer
}

func (a archived) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = a.c.translate(err, "")
	}
	return n, err
}

// missingParents returns entries for the directories above name that do not exist, outermost first.
func (c *Client) missingParents(ctx context.Context, container string, owner FileOwner, name string) ([]tar.Header, error) {
	var heads []tar.Header
	for dir := path.Dir(path.Clean(name)); dir != "/" && dir != "."; dir = path.Dir(dir) {
		_, err := c.stat(ctx, container, dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fumehood.ErrNotFound) {
			return nil, err
		}
		heads = append(heads, tar.Header{
			Typeflag: tar.TypeDir, Name: strings.TrimLeft(dir, "/") + "/", Mode: 0o755, Uid: owner.UID, Gid: owner.GID,
		})
	}
	slices.Reverse(heads)
	return heads, nil
}

// giveTo copies an archive with another owner of all entries.
func giveTo(tw *tar.Writer, owner FileOwner, content io.Reader) error {
	tr := tar.NewReader(content)
	for {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			head.Uid, head.Gid, head.Uname, head.Gname, head.Format = owner.UID, owner.GID, "", "", tar.FormatPAX
			err = tw.WriteHeader(head)
		}
		if err == nil {
			_, err = io.Copy(tw, tr)
		}
		if err != nil {
			return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("read the tar stream: %w", err)}
		}
	}
}

// writeFile writes the archive of a file with size bytes of content, and of the directories above it.
func writeFile(tw *tar.Writer, heads []tar.Header, content io.Reader, size int64) error {
	for _, head := range heads {
		head.ModTime, head.Format = time.Now(), tar.FormatPAX
		if err := tw.WriteHeader(&head); err != nil {
			return &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
		}
	}
	n, err := io.CopyN(tw, content, size)
	if errors.Is(err, io.EOF) {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the content ended after %d of %d bytes", n, size)}
	}
	return err
}

// extract has the Engine unpack in dir what pack writes. An error of the content's own is returned as it is.
func (c *Client) extract(ctx context.Context, container, dir string, pack func(*tar.Writer) error) error {
	pr, pw := io.Pipe()
	packed := make(chan error, 1) // where the Engine stops early, pack may still wait for content after the return
	go func() {
		tw := tar.NewWriter(pw)
		err := pack(tw)
		if err == nil {
			err = tw.Close()
		}
		packed <- err
		pw.CloseWithError(err)
	}()
	_, err := c.api.CopyToContainer(ctx, container, client.CopyToContainerOptions{DestinationPath: dir, Content: pr})
	var known *fumehood.Error
	select {
	case own := <-packed:
		_ = errors.As(own, &known)
	default:
		_ = pr.CloseWithError(errors.New("the Engine stopped reading")) // ends pack
	}
	switch {
	case known != nil:
		return known
	case err != nil:
		return c.fileFailure(ctx, container, err)
	}
	return nil
}
