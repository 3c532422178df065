package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guests"
	"github.com/fumehood/fumehood/internal/wire/client"
)

// maxUsers bounds the files in which the container's runtime looks up a user, in bytes.
const maxUsers = 16 << 20

// checkUsers refuses files of users at which the container's runtime would wait for ever, as at a pipe.
func checkUsers(ctx context.Context, look func(ctx context.Context, file string) error) error {
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		err := look(ctx, file)
		for _, class := range []error{fumehood.ErrNotRegular, fumehood.ErrIsDirectory, fumehood.ErrTooLarge, fumehood.ErrUnsupported} {
			if errors.Is(err, class) {
				return &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: fmt.Errorf("nobody can be looked up in %s: %w", file, err)}
			}
		}
	}
	return nil // what else is wrong with them, the runtime tells
}

// trapped is the error of files of users that what runs in the sandbox has changed since checkUsers has passed them, and changes
// back and forth, perhaps; nil where they are as they should be. It outlives the end of ctx. The Engine is asked only where there is
// no guest to ask: while a runtime waits at a pipe, the Engine does not answer about its container.
func (s *service) trapped(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), guests.DeathWait)
	defer cancel()
	look := s.checkRegular
	if main := s.guests.Main(); main != nil {
		look = func(ctx context.Context, file string) error { return sees(ctx, main, file) }
	}
	for range 20 {
		if err := checkUsers(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// checkRegular refuses what is no regular file of at most maxUsers bytes. The service's guest sees what the runtime will see, but
// where links lead through /proc, by whose own each sees its own.
func (s *service) checkRegular(ctx context.Context, file string) error {
	main := s.guests.Main()
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
	if errors.Is(err, fumehood.ErrPermission) { // the runtime may
		return s.engineSees(ctx, file)
	}
	return err
}

// engineSees is checkRegular as the Engine sees the file.
func (s *service) engineSees(ctx context.Context, file string) error {
	return s.sb.p.engine.CheckRegular(ctx, s.id, file, maxUsers)
}

// sees is checkRegular as a guest sees the file.
func sees(ctx context.Context, g *client.Guest, file string) error {
	r, info, err := g.Open(ctx, file, 0, 0)
	if err != nil {
		return err
	}
	if info.Size > maxUsers {
		err = &fumehood.Error{Class: fumehood.ErrTooLarge, Err: fmt.Errorf("it has %d bytes, and %d are the limit", info.Size, maxUsers)}
	}
	return errors.Join(err, r.Close())
}
