// Package workspace handles the folders that sandboxes work in: their snapshots, the differences between two
// snapshots, and the input files that are written into them. It does not depend on sandboxes or Docker.
//
// A snapshot is a tar stream, compressed or not, of files, folders and symbolic links. Its order is fixed: the
// same tree gives the same bytes. A snapshot is read as untrusted input: no entry is written outside of the
// folder that it is restored to, and limits bound the unpacked size.
//
// Folders are read and written through os.Root. A process that works in a folder at the same time cannot use a
// link to lead this package out of it.
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

// failure returns the error of an operation on a path. Its class is that of the cause, else one that the cause
// suggests, else class. A cause without an operation gets this one.
func failure(op, path string, class, err error) error {
	if inner, ok := err.(*fumehood.Error); ok && inner.Op == "" { //nolint:errorlint // only an unwrapped error
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

// canceledError returns the error of an operation that the end of ctx has stopped.
func canceledError(ctx context.Context) error {
	return &fumehood.Error{Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
}

// wrong returns an ErrConfig about the caller's input. A retry does not help. The error has no operation yet.
func wrong(format string, a ...any) error {
	return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
}

// wrongEntry is like wrong, for an entry of a snapshot.
func wrongEntry(name, format string, a ...any) error {
	return &fumehood.Error{Op: "entry", Path: strconv.Quote(name), Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
}

// cause strips operation and path from a file error, for places where the path is reported already.
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
