// Package workspace keeps the folders that sandboxes work in: snapshots of them, the difference between
// two, and the input files that go into them. It knows no sandbox and no Docker.
//
// A snapshot is a tar stream, compressed or not, of files, folders and symbolic links, in an order of its
// own: the same tree gives the same bytes. It is read as what it is, the word of whoever made it: nothing
// of it lands outside of the folder that it is restored to, and limits bound what it unfolds to.
//
// Folders are read and written through os.Root, so that whoever works in one meanwhile cannot lead this
// package out of it by a link.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/fumehood/fumehood"
)

// failure makes the error of an operation on a path, with the class that the cause has or suggests. What
// suggests none is class. An error that has no operation yet gets this one.
func failure(op, path string, class, err error) error {
	if inner, ok := err.(*fumehood.Error); ok && inner.Op == "" { //nolint:errorlint // not one that others wrap
		return &fumehood.Error{Op: op, Path: path, Class: inner.Class, Err: inner.Err, Hint: inner.Hint}
	}
	if c := fumehood.ClassOf(err); c != nil {
		class = c
	} else {
		class = classOf(err, class)
	}
	return &fumehood.Error{Op: op, Path: path, Class: class, Err: err}
}

func classOf(err, otherwise error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fumehood.ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		return fumehood.ErrPermission
	case errors.Is(err, syscall.ENOTDIR):
		return fumehood.ErrNotDirectory
	case errors.Is(err, syscall.EISDIR):
		return fumehood.ErrIsDirectory
	}
	return otherwise
}

// cancelled makes the error of what the end of ctx has stopped.
func cancelled(ctx context.Context) error {
	return &fumehood.Error{Class: fumehood.ErrCancelled, Err: fumehood.Ended(ctx)}
}

// wrong makes an error about what was given: it will be wrong again. It has no operation yet.
func wrong(format string, a ...any) error {
	return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
}

// wrongEntry is wrong about an entry of a snapshot.
func wrongEntry(name, format string, a ...any) error {
	return &fumehood.Error{Op: "entry", Path: strconv.Quote(name), Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
}

// cause strips what a file operation says about itself, where the path is told already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// openRoot opens a folder of this machine.
func openRoot(dir string) (*os.Root, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return nil, &fumehood.Error{Class: fumehood.ErrNotDirectory}
	}
	if err != nil {
		return nil, cause(err)
	}
	root, err := os.OpenRoot(dir)
	return root, cause(err)
}
