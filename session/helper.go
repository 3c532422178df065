package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// The paths of the session's folder and of the workspace in a helper container.
const (
	helperDir  = "/fumehood-session"
	helperWork = helperDir + "/" + workDir
)

// imageFile names the image of the container that had the workspace mounted. It is in the session's folder once
// there has been such a container.
const imageFile = "image"

// helper starts throwaway containers for operations in a session's folder that this machine's user is not
// permitted to do.
type helper struct {
	provider fumehood.Provider
	image    string // empty if no container had the workspace mounted, so that none wrote in it
	folder   string
}

func (s *Session) helper() helper {
	s.mu.Lock()
	defer s.mu.Unlock()
	return helper{s.opts.Provider, s.image, s.folder}
}

// noteImage records the image that helpers run, also for a process that cleans up after this one has ended.
func (s *Session) noteImage(r *Runtime) error {
	if s.local() || s.uploads() && r.copies == "" {
		return nil
	}
	image := r.svc.ServiceInfo().Image
	s.mu.Lock()
	s.image = image
	s.mu.Unlock()
	return os.WriteFile(filepath.Join(s.folder, imageFile), []byte(image), 0o600)
}

// can reports whether a helper can do the operation for which this machine's user got the error err.
func (h helper) can(err error) bool { return errors.Is(err, fs.ErrPermission) && h.image != "" }

// with calls f with a container that runs as root and has the session's folder but no network. Nothing from the
// workspace runs in it.
func (h helper) with(ctx context.Context, f func(fumehood.Service) error) error {
	if h.provider == nil {
		return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("this needs a container"), Hint: "try again when the daemon is reachable"}
	}
	sb, err := h.provider.Start(ctx, fumehood.Spec{
		Image: h.image, User: "0:0", Dir: "/",
		Mounts: []fumehood.Mount{{Host: h.folder, Container: helperDir, Writable: true, Workspace: true}},
	})
	if err != nil {
		return err
	}
	if err = f(sb); err != nil {
		err = fmt.Errorf("in a container of %s: %w", h.image, err)
	}
	return errors.Join(err, sb.Close(ctx))
}

// remove removes the session's folder. The workspace and its copies, in which containers may have written, are
// removed first. The owner's mark stays until they are gone.
func (h helper) remove(ctx context.Context) error {
	if err := h.removeDir(ctx, workDir); err != nil {
		return err
	}
	if err := h.removeDir(ctx, mountsDir); err != nil {
		return err
	}
	return owner.Discard(h.folder)
}

// removeCopies removes the copies that a runtime has mounted. An empty name means that it has none.
func (h helper) removeCopies(ctx context.Context, copies string) error {
	if copies == "" {
		return nil
	}
	return h.removeDir(ctx, copies)
}

// removeDir removes a folder in the session's folder in which a container may have written.
func (h helper) removeDir(ctx context.Context, name string) error {
	dir := filepath.Join(h.folder, name)
	err := owner.RemoveFolder(dir)
	if !h.can(err) {
		return err
	}
	herr := h.with(ctx, func(svc fumehood.Service) error {
		err := svc.Remove(ctx, path.Join(helperDir, filepath.ToSlash(name)), fumehood.RemoveOptions{Recursive: true})
		if errors.Is(err, fumehood.ErrNotFound) {
			return nil
		}
		return err
	})
	if herr != nil {
		return errors.Join(err, herr)
	}
	return owner.RemoveFolder(dir)
}

// helperOf returns the helper of a session whose process may have ended.
func helperOf(provider fumehood.Provider, folder string) helper {
	image, _ := os.ReadFile(filepath.Join(folder, imageFile)) // a missing file means it had no container
	return helper{provider, strings.TrimSpace(string(image)), folder}
}
