package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	wirehost "github.com/fumehood/fumehood/internal/wire/host"
)

// maxUsers is the maximum size, in bytes, of the files in which the container's runtime looks up a user.
const maxUsers = 16 << 20

// userFiles are the files in which the container's runtime looks up a user.
var userFiles = []string{"/etc/passwd", "/etc/group"}

// checkUsers rejects user files that would block the container's runtime, such as pipes.
func checkUsers(ctx context.Context, look func(ctx context.Context, file string) error) error {
	for _, file := range userFiles {
		err := look(ctx, file)
		for _, class := range []error{fumehood.ErrNotRegular, fumehood.ErrIsDirectory, fumehood.ErrTooLarge, fumehood.ErrUnsupported} {
			if errors.Is(err, class) {
				return &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: fmt.Errorf("cannot look up users in %s: %w", file, err)}
			}
		}
	}
	return nil // the runtime reports all other problems with them
}

// recheckUsers returns an error if user files were changed after checkUsers accepted them. A program in the sandbox may also
// switch them back and forth, so trapped checks several times, and a change meanwhile is an ErrBroken. It returns nil if
// the files are fine. It works even if ctx has ended. It asks the Engine only if there is no guest to ask: while a
// runtime blocks on a pipe, the Engine does not answer requests about its container.
func (s *service) recheckUsers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), box.DeathWait)
	defer cancel()
	look, main := s.checkRegular, s.Guests.Main()
	if main != nil {
		look = func(ctx context.Context, file string) error { return sees(ctx, main, file) }
	}
	first := map[string]fumehood.FileInfo{}
	for range 20 {
		if err := checkUsers(ctx, look); err != nil {
			return err
		}
		for _, file := range userFiles {
			if main == nil {
				continue
			}
			info, err := main.Stat(ctx, file)
			if was, known := first[file]; err == nil && known && was != info {
				return &fumehood.Error{Class: fumehood.ErrBroken, Err: fmt.Errorf("a program in the sandbox keeps replacing %s, in which users are looked up", file)}
			}
			if err == nil {
				first[file] = info
			}
		}
	}
	return nil
}

// checkRegular returns an error unless a file is a regular file of at most maxUsers bytes. The service's guest sees the
// same files as the runtime, except where links lead through /proc, because each process sees its own entries there.
func (s *service) checkRegular(ctx context.Context, file string) error {
	main := s.Guests.Main()
	if main == nil {
		return s.engineSees(ctx, file)
	}
	for _, part := range []string{path.Dir(file), file} {
		if info, err := main.Stat(ctx, part); err == nil && info.Mode&fs.ModeSymlink != 0 {
			if err := s.engineSees(ctx, file); err != nil {
				return err
			}
		}
	}
	err := sees(ctx, main, file)
	if errors.Is(err, fumehood.ErrPermission) { // the runtime may have permission
		return s.engineSees(ctx, file)
	}
	return err
}

// engineSees is checkRegular through the Engine.
func (s *service) engineSees(ctx context.Context, file string) error {
	return s.sb.p.engine.CheckRegular(ctx, s.id, file, maxUsers)
}

// sees is checkRegular through a guest.
func sees(ctx context.Context, g *wirehost.Guest, file string) error {
	r, info, err := g.Open(ctx, file, 0, 0)
	if err != nil {
		return err
	}
	if info.Size > maxUsers {
		err = &fumehood.Error{Class: fumehood.ErrTooLarge, Err: fmt.Errorf("file has %d bytes, the limit is %d", info.Size, maxUsers)}
	}
	return errors.Join(err, r.Close())
}
