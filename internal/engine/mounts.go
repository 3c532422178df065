package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/fumehood/fumehood"
)

// Covering returns the destination of a mount of a container, which has not started, that covers dir or something below it
// once the links on its way are followed; "" where there is none. The destinations own are not looked at. Where dir itself
// leads elsewhere by a link, it is dir: who can change that link decides what is found there.
func (c *Client) Covering(ctx context.Context, container State, dir string, own ...string) (string, error) {
	if at, err := c.follow(ctx, container.ID, dir); err != nil || at != dir {
		return dir, err
	}
	for _, destination := range container.Mounts {
		if slices.Contains(own, destination) {
			continue
		}
		at, err := c.follow(ctx, container.ID, destination)
		if err != nil {
			return "", err
		}
		if at == dir || at == "/" || strings.HasPrefix(at, dir+"/") || strings.HasPrefix(dir, at+"/") {
			return destination, nil
		}
	}
	return "", nil
}

// follow returns where an absolute path leads to in a container, the links on its way followed too. It need not exist.
func (c *Client) follow(ctx context.Context, container, name string) (string, error) {
	at, rest := "/", strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	for links := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		info, err := c.stat(ctx, container, next)
		switch {
		case errors.Is(err, fumehood.ErrUnsupported), errors.Is(err, fumehood.ErrNotFound), errors.Is(err, fumehood.ErrUnavailable) && c.isThere(ctx, container):
			return path.Join(append([]string{next}, rest...)...), nil // nothing below it is there
		case err != nil:
			return "", err
		case info.Mode&fs.ModeSymlink == 0:
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", errLoop
		}
		at, rest = "/", append(strings.Split(strings.Trim(path.Clean(info.LinkTarget), "/"), "/"), rest...)
	}
	return at, nil
}

// isThere reports whether a container is there.
func (c *Client) isThere(ctx context.Context, container string) bool {
	_, err := c.Inspect(ctx, container)
	return err == nil
}

// HasFile reports whether a path in a container is a regular file with this content.
func (c *Client) HasFile(ctx context.Context, container, name string, content []byte) (bool, error) {
	res, err := c.copyFrom(ctx, container, name)
	if errdefs.IsNotFound(err) {
		_, err = c.Inspect(ctx, container) // it may be the container that is not there
		return false, err
	}
	if err != nil {
		err = c.fileFailure(ctx, container, err)
		for _, class := range []error{fumehood.ErrNotFound, fumehood.ErrNotDirectory, fumehood.ErrPermission} {
			if errors.Is(err, class) { // as of a mount whose directory is not there
				return false, nil
			}
		}
		return false, err
	}
	defer res.Content.Close()
	tr := tar.NewReader(res.Content)
	head, err := tr.Next()
	if err != nil {
		return false, c.translate(err, "read "+name)
	}
	if !head.FileInfo().Mode().IsRegular() || head.Size != int64(len(content)) {
		return false, nil
	}
	got, err := io.ReadAll(tr) // as much as the content
	if err != nil {
		return false, c.translate(err, "read "+name)
	}
	return bytes.Equal(got, content), nil
}
