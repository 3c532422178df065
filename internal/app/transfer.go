package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/archive"
)

// Transfer is a file or a tree to copy. A file is copied into an existing folder, as with cp, and so is a tree that
// is copied out. A tree that is copied in is merged into an existing folder, so that the result does not depend on
// whether the image already has that folder.
type Transfer struct {
	Host        string // the path on this machine
	Sandbox     string // a relative path is resolved against the service's directory
	LinksAsText bool   // copy out a link that may lead out of the tree as a file with its target; else it is an error
}

// Limits of what a sandbox can write to the host with one copy.
const (
	maxCopyBytes   = 10 << 30
	maxCopyEntries = 1_000_000
)

// CopyIn copies from this machine to a service.
func (t Transfer) CopyIn(ctx context.Context, svc fumehood.Service) error {
	return t.hint(ctx, svc, t.copyIn(ctx, svc))
}

// hint adds to the error of a user who may not write where a copy goes why, and a folder where it may.
func (t Transfer) hint(ctx context.Context, svc fumehood.Service, err error) error {
	denied, ok := errors.AsType[*fumehood.Error](err)
	if !ok || !errors.Is(denied.Class, fumehood.ErrPermission) || denied.Hint != "" {
		return err
	}
	hinted := *denied
	hinted.Hint = "copy as another user, or to a folder of this one"
	if info, err := svc.Stat(ctx, "/tmp"); err == nil && info.Mode.IsDir() && info.Mode.Perm()&0o2 != 0 {
		hinted.Hint += ", such as a new one in /tmp"
	}
	if info, err := svc.Stat(ctx, t.absolute(svc)); err == nil { // a working directory that the image lacks is root's
		hinted.Hint = fmt.Sprintf("%s belongs to the user %d: %s", t.Sandbox, info.UID, hinted.Hint)
	}
	return &hinted
}

func (t Transfer) copyIn(ctx context.Context, svc fumehood.Service) error {
	op := fmt.Sprintf("copy %s to %s", t.Host, t.Sandbox)
	info, err := os.Stat(t.Host)
	if err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	if info.Mode().IsRegular() {
		f, err := os.Open(t.Host)
		if err != nil {
			return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
		}
		defer f.Close()
		return t.writeFile(ctx, svc, f, info)
	}
	root, err := filepath.EvalSymlinks(t.Host) // a link to a folder counts as the folder
	if err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	dir, name, err := t.existing(ctx, svc)
	if err != nil {
		return err
	}
	pack := func(w io.Writer) error {
		if err := archive.Pack(w, root, name); err != nil {
			return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
		}
		return nil
	}
	return archive.Pipe(pack, func(r io.Reader) error { return svc.Upload(ctx, dir, r) })
}

// writeFile copies a file to the sandbox's path, or into the folder at that path.
func (t Transfer) writeFile(ctx context.Context, svc fumehood.Service, f io.Reader, info fs.FileInfo) error {
	target, within := t.Sandbox, path.Join(t.Sandbox, info.Name())
	if strings.HasSuffix(target, "/") {
		target = within
	} else if there, err := svc.Stat(ctx, target+"/."); err == nil && there.Mode.IsDir() { // follows a link
		target = within
	}
	return svc.WriteFrom(ctx, target, f, info.Size(), fumehood.WriteOptions{Mode: info.Mode().Perm(), ModTime: info.ModTime()})
}

// existing splits the sandbox's path into its deepest existing folder and the rest.
func (t Transfer) existing(ctx context.Context, svc fumehood.Service) (dir, name string, err error) {
	dir, name = path.Split(path.Clean(t.absolute(svc)))
	for dir = path.Clean(dir); dir != "/"; dir = path.Dir(dir) {
		_, err := svc.Stat(ctx, dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fumehood.ErrNotFound) {
			return "", "", err
		}
		name = path.Join(path.Base(dir), name)
	}
	if name == "" {
		name = "." // the root of the sandbox
	}
	return dir, name, nil
}

// absolute resolves the sandbox's path as the library does.
func (t Transfer) absolute(svc fumehood.Service) string {
	if path.IsAbs(t.Sandbox) {
		return t.Sandbox
	}
	return path.Join(svc.ServiceInfo().Dir, t.Sandbox)
}

// CopyOut copies from a service to this machine.
func (t Transfer) CopyOut(ctx context.Context, svc fumehood.Service) error {
	op := fmt.Sprintf("copy %s to %s", t.Sandbox, t.Host)
	host, err := filepath.Abs(t.Host)
	if err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	if path.Clean(t.absolute(svc)) == "/" {
		return &fumehood.Error{
			Op: op, Class: fumehood.ErrConfig, Err: errors.New("the root folder has devices and the kernel's /proc and /sys, which cannot be copied"),
			Hint: "copy its folders one by one",
		}
	}
	if info, err := os.Stat(host); err == nil && info.IsDir() {
		host = filepath.Join(host, path.Base(path.Clean(t.absolute(svc)))) // into the folder, like cp
	}
	r, err := svc.Download(ctx, t.Sandbox)
	if err != nil {
		return err
	}
	defer r.Close()
	opts := archive.Options{Bytes: maxCopyBytes, Entries: maxCopyEntries, LinksAsText: t.LinksAsText}
	if err := archive.Unpack(r, filepath.Dir(host), filepath.Base(host), opts); err != nil {
		return &fumehood.Error{Op: op, Class: unpackClass(ctx, err), Err: err}
	}
	return nil
}

// unpackClass returns the error class of a failed copy out.
func unpackClass(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fumehood.ErrCanceled
	case errors.Is(err, archive.ErrLimit):
		return fumehood.ErrLimit
	case fumehood.ClassOf(err) != nil:
		return fumehood.ClassOf(err)
	}
	return fumehood.ErrConfig
}
