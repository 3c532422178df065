package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lazaret/lazaret"
)

// helperDir is where a helper has the session's folder.
const helperDir = "/lazaret-session"

// canHelp says whether a container can do what this machine's user may not: there is none where nothing
// has run, and then nothing was written either.
func (s *Session) canHelp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.local() && s.image != "" && !s.uploads()
}

// withHelper calls f with a throwaway container whose user is root, that has the session's folder and no
// network. Nothing of the workspace is run in it.
func (s *Session) withHelper(ctx context.Context, f func(*lazaret.Service) error) error {
	s.mu.Lock()
	image := s.image
	s.mu.Unlock()
	sb, err := s.opts.Provider.Start(ctx, lazaret.Spec{
		Image: image, User: "0:0", Dir: "/", Network: lazaret.NetworkNone,
		Mounts: []lazaret.Mount{{Host: s.folder, Container: helperDir, Writable: true}},
	})
	if err != nil {
		return err
	}
	return errors.Join(f(sb.Service), sb.Close(ctx))
}

// remove removes a path in the session's folder with all that is below it. What this machine's user may
// not remove, a container does.
func (s *Session) remove(ctx context.Context, path string) error {
	err := removeOwn(path)
	if err == nil || !errors.Is(err, fs.ErrPermission) || !s.canHelp() {
		return err
	}
	rel, rerr := filepath.Rel(s.folder, path)
	if rerr != nil {
		return rerr
	}
	inside := helperDir + "/" + filepath.ToSlash(rel)
	if rel == "." { // the folder itself is ours; what is in the way is in the workspace
		inside = helperDir + "/work"
	}
	err = s.withHelper(ctx, func(svc *lazaret.Service) error {
		err := svc.Remove(ctx, inside, lazaret.RemoveOptions{Recursive: true})
		if errors.Is(err, lazaret.ErrNotFound) {
			return nil
		}
		return err
	})
	return errors.Join(err, removeOwn(path))
}

// removeOwn removes a path, whatever the modes of the folders that belong to this machine's user.
func removeOwn(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700) //nolint:gosec // a folder; what cannot be changed shows when it is removed
		}
		return nil
	})
	return os.RemoveAll(path)
}
