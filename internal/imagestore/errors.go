package imagestore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/fumehood/fumehood"
)

// bad returns the error of an image whose content is not valid.
func bad(format string, args ...any) error {
	return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("bad image: "+format, args...)}
}

// wrongPlatform returns the error of an image that exists only for other platforms.
func wrongPlatform(has []string, arch string) error {
	return &fumehood.Error{
		Class: fumehood.ErrUnsupported,
		Err:   fmt.Errorf("image is for %s, this machine needs linux/%s", strings.Join(has, ", "), arch),
	}
}

// interrupted is the error of a stream whose source failed, such as a connection that broke.
type interrupted struct{ error }

func (i interrupted) Unwrap() error { return i.error }

// isDisk reports whether a system call failed because of the store's disk, and not because of what was requested.
func isDisk(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES,
	}, func(e error) bool { return errors.Is(err, e) })
}

// translate gives an error one of the module's classes, and the operation.
func (s *Store) translate(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	var known *fumehood.Error
	if errors.As(err, &known) && ctx.Err() == nil {
		with := *known
		if with.Op == "" {
			with.Op = op
		}
		return &with
	}
	e := &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: err}
	switch {
	case ctx.Err() != nil:
		e.Class, e.Err = fumehood.ErrCanceled, fumehood.Ended(ctx)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "the disk of the image store is full: free space in " + s.dir + "; `fumehood cleanup --caches` removes unused images"
	}
	return e
}

// pullFailure returns the error of a request to a registry.
func pullFailure(ctx context.Context, registry string, err error) error {
	var known *fumehood.Error
	if err == nil || ctx.Err() != nil || errors.As(err, &known) {
		return err
	}
	e := &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
	var answer *transport.Error
	var broken net.Error
	switch {
	case errors.As(err, &answer):
		e.Err = fmt.Errorf("%s: %s", registry, reason(answer))
		switch status := answer.StatusCode; {
		case status == http.StatusTooManyRequests || status >= 500:
			e.Hint = "the registry is busy or broken; try again later"
		case status == http.StatusNotFound:
			e.Class, e.Hint = fumehood.ErrConfig, "check the image's name and tag, and log in if it is private"
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			e.Class, e.Hint = fumehood.ErrConfig, "check the image's name and tag, or log in to the registry: docker login "+registry
		}
	case errors.As(err, &broken):
		e.Class, e.Err = fumehood.ErrUnavailable, fmt.Errorf("no image of that name here, and cannot reach the registry: %w", err)
		e.Hint = "check the image's name and this machine's network, or use a file: docker-archive:FILE, oci:FOLDER"
	}
	return e
}

// reason is the first reason in a registry's answer, or the status. The answer itself may be long.
func reason(answer *transport.Error) string {
	text := http.StatusText(answer.StatusCode)
	if len(answer.Errors) > 0 {
		text = answer.Errors[0].String()
	}
	const most = 300
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, strings.ToValidUTF8(text, "?"))
}

// classed reports whether an error has one of the module's classes.
func classed(err error) bool {
	var known *fumehood.Error
	return errors.As(err, &known)
}
