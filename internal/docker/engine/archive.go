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
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// maxLinks is the limit of links followed for one path, the same as in Linux (MAXSYMLINKS).
const maxLinks = 40

// errLoop is the kernel's ELOOP.
var errLoop error = &fumehood.Error{Class: fumehood.ErrNotFound, Err: errors.New("too many levels of symbolic links")}

func fileError(class error) error { return &fumehood.Error{Class: class} }

// fileFailure gives an error of the Engine's archive calls a class. For a container that does not run, it returns
// that as the reason.
func (c *Client) fileFailure(ctx context.Context, container string, err error) error {
	if errors.Is(err, fumehood.ErrNotRegular) { // from copyFrom
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
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("an archive entry is outside the directory")}
	case strings.Contains(text, "marked read-only"), strings.Contains(text, "read-only file system"):
		return &fumehood.Error{Class: fumehood.ErrPermission, Err: errors.New("the file system is read-only")}
	case strings.Contains(text, "invalid tar header"), strings.Contains(text, "unexpected eof"):
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("incomplete or invalid tar archive")}
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
		case !state.Running && state.Status != created:
			return state.Unavailable()
		}
		return fileError(fumehood.ErrNotFound)
	}
	return c.explainGone(ctx, container, err, "")
}

// Stat describes a path in a container. It does not follow a link at the end of the path. The Engine resolves the
// path inside the container's root, so links cannot lead out of it.
func (c *Client) Stat(ctx context.Context, container, name string) (fumehood.FileInfo, error) {
	info, err := c.stat(ctx, container, name)
	if err != nil || info.Mode&fs.ModeSymlink == 0 {
		return info, err
	}
	// The Engine reports where the link finally leads to; only its archive contains the link's own text.
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

// stat is Stat, except that a link's target is the absolute path that it finally leads to.
func (c *Client) stat(ctx context.Context, container, name string) (fumehood.FileInfo, error) {
	if err := visible(name); err != nil {
		return fumehood.FileInfo{}, err
	}
	res, err := c.api.ContainerStatPath(ctx, container, client.ContainerStatPathOptions{Path: name})
	if err != nil && errdefs.IsInternal(err) {
		// The answer to HEAD has no body, and so no reason. GET returns the reason.
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
		UID: -1, GID: -1, // not reported by the Engine
	}
	if info.Mode.IsRegular() {
		info.Size = res.Stat.Size
	}
	return info, nil
}

// lookups are the files of the container in which the Engine looks up users when it makes an archive.
var lookups = []string{"/etc/passwd", "/etc/group", "/etc/nsswitch.conf"}

// copyFrom starts an archive of a path. If one of lookups is a pipe, the Engine would block on it forever and hold
// the container's lock, so that the container could be neither inspected nor removed. In that case copyFrom fails.
// The check is reliable only if nothing that runs in the container replaces such a file meanwhile.
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
	if err == nil && res.Stat.Mode&fs.ModeSymlink != 0 { // the Engine reports where it finally leads to
		res, err = c.api.ContainerStatPath(ctx, container, client.ContainerStatPathOptions{Path: res.Stat.LinkTarget})
	}
	// A path that cannot be reached, as below a non-directory, is not opened by the Engine either.
	switch mode := res.Stat.Mode; {
	case errdefs.IsNotFound(err), errdefs.IsInternal(err), err == nil && (mode.IsRegular() || mode.IsDir()):
		return nil
	case err == nil:
		return &fumehood.Error{
			Class: fumehood.ErrNotRegular, Err: fmt.Errorf("reading files would block the Engine: the container's %s is a %s", file, archive.Kind(mode)),
			Hint: "make it a regular file, or use the guest transport",
		}
	}
	return err
}

// CheckRegular fails if a path of a container, with links followed, is not a regular file or has more than most
// bytes. A missing file passes. A file that the Engine cannot see, as in a tmpfs, is an ErrUnsupported.
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
		return &fumehood.Error{Class: fumehood.ErrTooLarge, Err: fmt.Errorf("%s has %d bytes, the limit is %d", name, info.Size, most)}
	}
	return wantRegular(info.Mode)
}

// hidden are the file systems that exist only while a container runs. The Engine's archive calls see what the image
// has below them instead. They would read and write other files than a program in the container.
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

// resolve follows links at the end of name until it is not a link.
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

// Open opens a regular file for reading.
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
	// The sandbox may have replaced the file meanwhile, so check the archive's entry.
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

// archived is an open file within an archive stream.
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

// missingParents returns archive entries for the missing directories above name, outermost first.
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

// giveTo copies an archive and sets the owner of all its entries.
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

// writeFile writes an archive with the directories and the file of heads. The file gets size bytes of content.
func writeFile(tw *tar.Writer, heads []tar.Header, content io.Reader, size int64) error {
	for _, head := range heads {
		head.Format = tar.FormatPAX
		if head.ModTime.IsZero() {
			head.ModTime = time.Now()
		}
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

// extract makes the Engine unpack in dir the archive that pack writes. An error of the content itself is returned as
// it is.
func (c *Client) extract(ctx context.Context, container, dir string, pack func(*tar.Writer) error) error {
	pr, pw := io.Pipe()
	// Buffered: if the Engine stops early, pack may still wait for content after extract has returned.
	packed := make(chan error, 1)
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
