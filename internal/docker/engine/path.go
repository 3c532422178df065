package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/fumehood/fumehood"
)

// defaultPath is the PATH of containers whose configuration has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxSearched limits how many directories of a PATH are searched.
const maxSearched = 64

// explainNotFound explains the error of a program that the Engine has not found in PATH. As shells do, it distinguishes a file
// that may not be executed from one that does not exist. The Engine does not.
func (c *Client) explainNotFound(ctx context.Context, container string, cmd fumehood.Cmd, err error) error {
	name := cmd.Args[0]
	if !errors.Is(err, fumehood.ErrProgramNotFound) || strings.Contains(name, "/") {
		return err
	}
	state, ierr := c.Inspect(ctx, container)
	if ierr != nil {
		return err
	}
	search, set := cmd.Env["PATH"]
	if !set {
		search = cmp.Or(state.Path, defaultPath)
	}
	for i, dir := range strings.Split(search, ":") {
		if i == maxSearched {
			break
		}
		file := path.Join(dir, name)
		if !path.IsAbs(dir) {
			file = path.Join("/", cmp.Or(cmd.Dir, state.WorkingDir), file)
		}
		if _, _, serr := c.resolve(ctx, container, file); serr == nil { // other errors leave it unknown
			return &fumehood.Error{Class: fumehood.ErrNotExecutable, Err: fmt.Errorf("%s: permission denied", file)}
		}
	}
	return err
}
