package engine

import (
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
)

// FileOwner is the owner of new files.
type FileOwner struct{ UID, GID int }

// maxUserFile limits how much of a container's /etc/passwd and /etc/group is read, in bytes.
const maxUserFile = 1 << 20

// FileOwner resolves a container's user ("", "name", "uid", each with ":group") to numbers. It uses the container's
// own /etc/passwd and /etc/group; the Engine would use its host's.
func (c *Client) FileOwner(ctx context.Context, container, spec string) (FileOwner, error) {
	if spec == "" {
		return FileOwner{}, nil
	}
	passwd, err := c.small(ctx, container, "/etc/passwd")
	if err != nil {
		return FileOwner{}, err
	}
	group, err := c.small(ctx, container, "/etc/group")
	if err != nil {
		return FileOwner{}, err
	}
	u, err := files.FindUser(spec, passwd, group)
	if err != nil {
		return FileOwner{}, &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: err}
	}
	return FileOwner{u.UID, u.GID}, nil
}

// small reads a file of the container. A missing file is empty.
func (c *Client) small(ctx context.Context, container, name string) ([]byte, error) {
	r, _, err := c.Open(ctx, container, name)
	if errors.Is(err, fumehood.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxUserFile))
}

// CheckGroup returns an error for a number that is the name of a group of a container, with another id: the Engine would take
// it for the name.
func (c *Client) CheckGroup(ctx context.Context, container, number string) error {
	if _, err := strconv.Atoi(number); err != nil {
		return nil
	}
	groups, err := c.small(ctx, container, "/etc/group")
	if err != nil {
		return err
	}
	return files.CheckGroupName(number, groups)
}
