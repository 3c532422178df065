package app

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/rootpath"
	"github.com/fumehood/fumehood/session/workspace"
)

// Transfer is a file or a tree to copy. A file is copied into an existing folder, as with cp, and so is a tree that
// is copied out. A tree that is copied in is merged into an existing folder, so that the result does not depend on
// whether the image already has that folder. What is copied in belongs to the service's user, and so do folders that are
// created for it, also where only root may create them. Existing folders keep their owner; the user must be able to write
// there. The exception is an empty working directory of root, as Engines create it: it is given to the user.
type Transfer struct {
	Host        string // the path on this machine
	Sandbox     string // a relative path is resolved against the service's directory
	LinksAsText bool   // copy out a link that may lead out of the tree as a file with its target; else it is an error
	// Limits bound what is copied out: Bytes and Entries. Exceeding one is an ErrLimit, and what was copied so far stays.
	Limits workspace.Limits
}

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
	claim(ctx, svc, path.Clean(t.absolute(svc)))
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
	claim(ctx, svc, path.Dir(absolute(svc, target)))
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

// claim makes a folder of a service one of its user, if it is missing, or empty and the working directory. Root or the Engine
// does what the user may not, but never through a link that the user's programs could have made. Errors are left to the
// copy, which names them.
func claim(ctx context.Context, svc fumehood.Service, folder string) {
	user := svc.ServiceInfo().User
	if user == "" {
		return
	}
	info, err := svc.Stat(ctx, folder+"/.") // follows a link
	switch {
	case err == nil && info.UID == 0 && folder == path.Clean(svc.ServiceInfo().Dir):
		if in, err := svc.List(ctx, folder); err != nil || len(in) > 0 {
			return
		}
	case errors.Is(err, fumehood.ErrNotFound):
		claim(ctx, svc, path.Dir(folder))
		if !errors.Is(svc.Mkdir(ctx, folder, fumehood.MkdirOptions{}), fumehood.ErrPermission) {
			return
		}
	default:
		return
	}
	if svc.As("0").Mkdir(ctx, folder, fumehood.MkdirOptions{Parents: true, Owner: user}) == nil || !rootpath.Fixed(ctx, svc, path.Dir(folder)) {
		return
	}
	dir := func(w io.Writer) error { // the Engine works by name; the folder belongs to the user, as all that the Engine extracts for it
		tw := tar.NewWriter(w)
		err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Base(folder) + "/", Mode: 0o755, ModTime: info.ModTime})
		return cmp.Or(err, tw.Close())
	}
	_ = archive.Pipe(dir, func(r io.Reader) error { return svc.ViaEngine().Upload(ctx, path.Dir(folder), r) })
}

func (t Transfer) absolute(svc fumehood.Service) string { return absolute(svc, t.Sandbox) }

// absolute resolves a path in a sandbox as the library does.
func absolute(svc fumehood.Service, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(svc.ServiceInfo().Dir, name)
}

// apart are the folders of / whose files are the kernel's, devices or Fumehood's own. They are not copied with /.
var apart = []string{"/dev", "/proc", "/sys", setup.GuestDir}

// CopyOut copies from a service to this machine. It logs what it leaves out: pipes, sockets and devices, and folders of /.
func (t Transfer) CopyOut(ctx context.Context, svc fumehood.Service, log *slog.Logger) error {
	op := fmt.Sprintf("copy %s to %s", t.Sandbox, t.Host)
	host, err := filepath.Abs(t.Host)
	if err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	if info, err := os.Stat(host); err == nil && info.IsDir() {
		host = filepath.Join(host, path.Base(path.Clean(t.absolute(svc)))) // into the folder, like cp
	}
	unpack := func(r io.Reader) error {
		limits := t.Limits.WithDefaults()
		opts := archive.Options{Bytes: limits.Bytes, Entries: limits.Entries, LinksAsText: t.LinksAsText, Skipped: warnSkipped(log)}
		return archive.Unpack(r, filepath.Dir(host), filepath.Base(host), opts)
	}
	failed := func(err error) error {
		if whole, ok := errors.AsType[*fumehood.Error](err); err == nil || ok && whole.Op != "" {
			return err
		}
		return &fumehood.Error{Op: op, Class: unpackClass(ctx, err), Err: err, Hint: raise(err)}
	}
	if path.Clean(t.absolute(svc)) == "/" {
		log.Warn("the kernel's and Fumehood's folders are not copied", "folders", strings.Join(apart, " "))
		return failed(archive.Pipe(func(w io.Writer) error { return packRoot(ctx, svc, w, warnSkipped(log)) }, unpack))
	}
	r, err := svc.Download(ctx, t.Sandbox)
	if err != nil {
		return err
	}
	defer r.Close()
	return failed(unpack(r))
}

// warnSkipped returns a function that logs files that are not copied. Their names are the sandbox's.
func warnSkipped(log *slog.Logger) func([]archive.SkippedFile, int) {
	return func(files []archive.SkippedFile, count int) {
		const most = 10
		names := make([]string, 0, most)
		for _, f := range files[:min(len(files), most)] {
			names = append(names, fmt.Sprintf("%q (%s)", f.Path, f.Kind))
		}
		log.Warn("not everything can be copied", "count", count, "first", strings.Join(names, " "))
	}
}

// packRoot writes an archive of a service's root file system without the folders apart. All names begin with root/.
func packRoot(ctx context.Context, svc fumehood.Service, w io.Writer, skipped func([]archive.SkippedFile, int)) error {
	all, err := svc.List(ctx, "/")
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "root/", Mode: 0o755})
	for _, e := range all {
		switch name := "/" + e.Name; {
		case err != nil || slices.Contains(apart, name):
		case archive.Special(e.Mode):
			skipped([]archive.SkippedFile{{Path: name, Kind: archive.Kind(e.Mode)}}, 1)
		default:
			err = packBelow(ctx, svc, tw, name)
		}
	}
	return cmp.Or(err, tw.Close())
}

// packBelow adds a tree of a service to an archive, below root/.
func packBelow(ctx context.Context, svc fumehood.Service, tw *tar.Writer, name string) error {
	r, err := svc.Download(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, tar.ErrHeader) {
			err = fmt.Errorf("%w: %w", archive.ErrContent, err)
		}
		if err == nil {
			head.Name, head.Format = "root/"+head.Name, tar.FormatPAX
			err = tw.WriteHeader(head)
		}
		if err == nil {
			_, err = io.Copy(tw, tr)
		}
		if err != nil {
			return err
		}
	}
}

// raise returns how to raise the limit that a copy out has exceeded, or "".
func raise(err error) string {
	switch {
	case errors.Is(err, archive.ErrBytes):
		return "copy less, or raise the limit (--max-size)"
	case errors.Is(err, archive.ErrEntries):
		return "copy less, or raise the limit (--max-entries)"
	}
	return ""
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
