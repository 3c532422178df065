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

// Where a helper has the session's folder, and the workspace in it.
const (
	helperDir  = "/fumehood-session"
	helperWork = helperDir + "/" + workDir
)

// imageFile is in a session's folder once a container had the workspace mounted, and names its image.
const imageFile = "image"

// helper makes throwaway containers that do in a session's folder what this machine's user may not.
type helper struct {
	provider fumehood.Provider
	image    string // empty where no container had the workspace: none wrote in it either
	folder   string
}

func (s *Session) helper() helper {
	s.mu.Lock()
	defer s.mu.Unlock()
	return helper{s.opts.Provider, s.image, s.folder}
}

// noteImage keeps which image helpers are made of, for whoever cleans up after this process too.
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

// can says whether a helper can do what err says this machine's user may not.
func (h helper) can(err error) bool { return errors.Is(err, fs.ErrPermission) && h.image != "" }

// with calls f with a container whose user is root, that has the session's folder and no network. Nothing
// of the workspace is run in it.
func (h helper) with(ctx context.Context, f func(fumehood.Service) error) error {
	if h.provider == nil {
		return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("this needs a container"), Hint: "try again where the daemon answers"}
	}
	sb, err := h.provider.Start(ctx, fumehood.Spec{
		Image: h.image, User: "0:0", Dir: "/",
		Mounts: []fumehood.Mount{{Host: h.folder, Container: helperDir, Writable: true}},
	})
	if err != nil {
		return err
	}
	if err = f(sb); err != nil {
		err = fmt.Errorf("by a container of %s: %w", h.image, err)
	}
	return errors.Join(err, sb.Close(ctx))
}

// remove removes the session's folder. The workspace and the copies of it, the places where containers have written, go
// first: while they are there, so are the marks of whose they are.
func (h helper) remove(ctx context.Context) error {
	if err := h.removeDir(ctx, workDir); err != nil {
		return err
	}
	if err := h.removeDir(ctx, mountsDir); err != nil {
		return err
	}
	return owner.Discard(h.folder)
}

// removeCopies removes the copies of what a runtime has mounted; "" has none.
func (h helper) removeCopies(ctx context.Context, copies string) error {
	if copies == "" {
		return nil
	}
	return h.removeDir(ctx, copies)
}

// removeDir removes a folder in the session's folder, in which a container may have written.
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

// helperOf is the helper of a session whose process may have ended.
func helperOf(provider fumehood.Provider, folder string) helper {
	image, _ := os.ReadFile(filepath.Join(folder, imageFile)) // none: it had no container
	return helper{provider, strings.TrimSpace(string(image)), folder}
}
