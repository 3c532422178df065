package session

import (
	"archive/tar"
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
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/session/workspace"
)

// fill creates the private workspace and saves its initial state.
func (s *Session) fill(ctx context.Context) error {
	if err := s.placeWorkspace(ctx); err != nil {
		return err
	}
	// The parent folder keeps out the other users of this machine. In a container the workspace may be used by
	// another user than the one who created it.
	if err := os.Chmod(s.Workspace(), 0o777); err != nil {
		return err
	}
	if err := workspace.WriteInputs(ctx, s.Workspace(), s.opts.Inputs); err != nil {
		return err
	}
	if err := s.placeAssets(ctx); err != nil {
		return err
	}
	return s.saveStart(ctx)
}

func (s *Session) placeWorkspace(ctx context.Context) error {
	if s.opts.Snapshot != "" {
		return s.restore(ctx, s.opts.Snapshot)
	}
	if info, err := os.Stat(s.opts.Workspace); err != nil || !info.IsDir() {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the workspace %s is not a folder of this machine", s.opts.Workspace)}
	}
	return s.copyTree(ctx, s.opts.Workspace, s.Workspace(), workspace.CreateOptions{})
}

// pack returns a function that writes a folder as a snapshot, within the limits.
func (s *Session) pack(ctx context.Context, dir string, opts workspace.CreateOptions) func(io.Writer) error {
	opts.Compression, opts.Limits = workspace.None, s.opts.Limits
	return func(w io.Writer) error {
		_, err := workspace.Create(ctx, w, dir, opts)
		return err
	}
}

// copyTree copies to another folder what a snapshot of a folder includes. The target must be empty or missing.
func (s *Session) copyTree(ctx context.Context, from, to string, opts workspace.CreateOptions) error {
	return archive.Pipe(s.pack(ctx, from, opts), archive.Whole(func(r io.Reader) error { return s.unpack(ctx, r, to) }))
}

// restore fills the empty workspace from a snapshot file.
func (s *Session) restore(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return &fumehood.Error{Op: "read snapshot", Class: fumehood.ErrConfig, Err: err}
	}
	defer f.Close()
	return s.unpack(ctx, f, s.Workspace())
}

// unpack restores a snapshot with all its links. This is safe because code on this machine never follows them.
func (s *Session) unpack(ctx context.Context, r io.Reader, dir string) error {
	_, err := workspace.Restore(ctx, r, dir, workspace.RestoreOptions{AnyLinks: true, Limits: s.opts.Limits})
	return err
}

// ReadFiles returns the regular files of the workspace that match any of the globs. The keys are paths relative
// to the workspace, with slashes. The globs are those of package workspace, but may begin with ./ and end with /. If
// the files exceed fumehood.MaxReadFile bytes together, ReadFiles returns an ErrTooLarge.
func (s *Session) ReadFiles(ctx context.Context, globs ...string) (map[string][]byte, error) {
	const op = "read files"
	if err := s.checkOpen(op); err != nil {
		return nil, err
	}
	opts := workspace.CreateOptions{Keep: cleanGlobs(globs)}
	if err := opts.Validate(); err != nil {
		return nil, opError(op, err)
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	if err := s.fetch(ctx); err != nil {
		return nil, opError(op, err)
	}
	var files map[string][]byte
	err := s.reading(ctx, func(dir string) error {
		files = map[string][]byte{}
		return archive.Pipe(s.pack(ctx, dir, opts), archive.Whole(func(r io.Reader) error { return readRegular(r, files) }))
	})
	if err != nil {
		return nil, opError(op, err)
	}
	return files, nil
}

// cleanGlobs returns the globs without ./ at the beginning and / at the end. The result is never nil, which would
// include everything.
func cleanGlobs(globs []string) []string {
	clean := make([]string, len(globs))
	for i, g := range globs {
		if clean[i] = g; g == "" || path.IsAbs(g) {
			continue // an error
		}
		for strings.HasPrefix(clean[i], "./") {
			clean[i] = strings.TrimLeft(clean[i][1:], "/")
		}
		if clean[i] = strings.TrimRight(clean[i], "/"); clean[i] == "" || clean[i] == "." {
			clean[i] = "**" // the workspace itself
		}
	}
	return clean
}

func readRegular(r io.Reader, files map[string][]byte) error {
	left := int64(fumehood.MaxReadFile)
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		if left -= head.Size; left < 0 {
			return &fumehood.Error{Class: fumehood.ErrTooLarge, Err: errors.New("the files exceed 100 MiB together")}
		}
		if files[head.Name], err = io.ReadAll(tr); err != nil {
			return err
		}
	}
}

// reading calls f with the workspace. If this machine's user may not read all files that containers wrote,
// reading calls f again with a copy that a container has made. In the copy the owner may read files that were
// unreadable even to their owner.
func (s *Session) reading(ctx context.Context, f func(dir string) error) error {
	err := f(s.Workspace())
	h := s.helper()
	if !h.can(err) {
		return err
	}
	dir := filepath.Join(s.folder, "copy")
	err = errors.Join(owner.RemoveFolder(dir), h.with(ctx, func(svc fumehood.Service) error {
		return s.download(ctx, svc, helperWork, dir)
	}))
	if err == nil {
		err = f(dir)
	}
	return errors.Join(err, owner.RemoveFolder(dir))
}

// download copies a folder of a service to dir, which must not exist. The sandbox controls the content, so
// Restore checks it.
func (s *Session) download(ctx context.Context, svc fumehood.Service, from, dir string) error {
	pack := func(w io.Writer) error { return writeFolder(ctx, w, svc, from) }
	return archive.Pipe(pack, archive.Whole(func(r io.Reader) error { return s.unpack(ctx, r, dir) }))
}

// writeFolder writes a folder of a service as a tar stream. It leaves out what a snapshot cannot hold, and makes each
// file readable for its owner.
func writeFolder(ctx context.Context, w io.Writer, svc fumehood.Service, from string) error {
	tw := tar.NewWriter(w)
	for e, err := range svc.Walk(ctx, from) {
		if err != nil {
			return err
		}
		if e.Path == "." {
			continue
		}
		head := &tar.Header{Name: e.Path, Mode: int64(e.Mode.Perm()), ModTime: e.ModTime}
		switch e.Mode.Type() {
		case 0:
			head.Typeflag, head.Size = tar.TypeReg, e.Size
			head.Mode |= 0o400
		case fs.ModeDir:
			head.Typeflag, head.Name = tar.TypeDir, head.Name+"/"
			head.Mode |= 0o700
		case fs.ModeSymlink:
			head.Typeflag, head.Linkname = tar.TypeSymlink, e.LinkTarget
		default:
			continue
		}
		if err := tw.WriteHeader(head); err != nil {
			return err
		}
		if head.Typeflag == tar.TypeReg {
			if err := copyFile(ctx, tw, svc, path.Join(from, e.Path)); err != nil {
				return err
			}
		}
	}
	return tw.Close()
}

// downloadFolder is writeFolder for a folder that programs may change meanwhile. It reads nothing outside the folder.
func downloadFolder(ctx context.Context, w io.Writer, svc fumehood.Service, from string) error {
	r, err := svc.Download(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	tw := tar.NewWriter(w)
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tw.Close()
		}
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(head.Name, "/") // without the folder's own
		if name == "" {
			continue
		}
		head.Name = name
		switch head.Typeflag {
		case tar.TypeReg:
			head.Mode |= 0o400
		case tar.TypeDir:
			head.Mode |= 0o700
		}
		if err := tw.WriteHeader(head); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
}

func copyFile(ctx context.Context, w io.Writer, svc fumehood.Service, file string) error {
	r, _, err := svc.Open(ctx, file)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}

// empty removes everything in the workspace. The workspace folder itself stays, because containers have it
// mounted.
func (s *Session) empty(ctx context.Context) error {
	entries, err := os.ReadDir(s.Workspace())
	for _, e := range entries {
		err = errors.Join(err, owner.RemoveFolder(filepath.Join(s.Workspace(), e.Name())))
	}
	h := s.helper()
	if !h.can(err) {
		return err
	}
	return h.with(ctx, func(svc fumehood.Service) error {
		return errors.Join(clearDir(ctx, svc, helperWork), svc.Chmod(ctx, helperWork, 0o777))
	})
}

// clearDir removes everything in a folder of a service.
func clearDir(ctx context.Context, svc fumehood.Service, dir string) error {
	entries, err := svc.List(ctx, dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, svc.Remove(ctx, path.Join(dir, e.Name), fumehood.RemoveOptions{Recursive: true}))
	}
	return errors.Join(errs...)
}
