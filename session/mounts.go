package session

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/session/workspace"
)

// mountsDir is the folder, in a session's folder, that holds the runtimes' copies of mounted parts of the
// workspace.
const mountsDir = "mounts"

// copyMounts replaces mounts of parts of the workspace by mounts of copies. A mount of the workspace itself is
// kept. Both are marked as the session's own, so that no provider logs them as weaker isolation. A process in the
// workspace can place a link there at any time, also between a check of the path and the
// Engine's mount. No container can access the parent folders of the copies.
//
// It returns the folder of all copies, relative to the session's folder, or "" if there are none. It returns the
// folder also on an error.
func (s *Session) copyMounts(ctx context.Context, runtime string, mounts []fumehood.Mount) (copies string, err error) {
	names := make([]string, len(mounts))
	for i, m := range mounts {
		if names[i], err = s.inWorkspace(m.Host); err != nil {
			return "", err
		}
		if names[i] != "" {
			copies = path.Join(mountsDir, runtime)
		}
		mounts[i].Workspace = names[i] != "" || s.isWorkspace(m.Host) // the session's own files, made to be written
	}
	if copies == "" {
		return "", nil
	}
	return copies, s.whileFrozen(ctx, func() error {
		for i, name := range names {
			if name == "" {
				continue
			}
			dir := filepath.Join(s.folder, copies, strconv.Itoa(i))
			if err := s.copyOf(ctx, name, dir); err != nil {
				return err
			}
			mounts[i].Host = filepath.Join(dir, filepath.FromSlash(name))
			if info, err := os.Lstat(mounts[i].Host); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
				return &fumehood.Error{
					Op: "mount " + name, Class: fumehood.ErrConfig, Err: errors.New("not a file or folder of the workspace"),
					Hint: "name a path without symbolic links",
				}
			}
		}
		return nil
	})
}

// isWorkspace reports whether a mount's host path is that of the workspace itself.
func (s *Session) isWorkspace(file string) bool { return filepath.Clean(file) == s.Workspace() }

// inWorkspace returns the path of a file in the workspace, relative to it and with slashes. For the workspace
// itself and for files outside it returns "".
func (s *Session) inWorkspace(file string) (string, error) {
	real, err := filepath.EvalSymlinks(s.Workspace()) // only this process can change the folders above
	if err != nil {
		return "", err
	}
	for _, dir := range []string{s.Workspace(), real} {
		if name, err := filepath.Rel(dir, file); err == nil && name != "." && filepath.IsLocal(name) {
			return filepath.ToSlash(name), nil
		}
	}
	return "", nil
}

// copyOf copies a path of the workspace, with its parent folders, into the folder dir, which it creates. It
// follows no links.
func (s *Session) copyOf(ctx context.Context, name, dir string) error {
	opts := workspace.CreateOptions{Take: func(at string) (take, below bool) {
		take = at == name || strings.HasPrefix(at, name+"/")
		return take, take || strings.HasPrefix(name, at+"/")
	}}
	return s.reading(ctx, func(from string) error {
		if err := errors.Join(owner.RemoveFolder(dir), os.MkdirAll(filepath.Dir(dir), 0o700)); err != nil {
			return err
		}
		return s.copyTree(ctx, from, dir, opts)
	})
}
