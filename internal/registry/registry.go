// Package registry asks registries for images, with the user's credentials and within limits. Nothing that a registry sends is
// trusted.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/fumehood/fumehood"
)

// Retries are the usual pauses before further requests to a registry that is busy or broken: 1, 3 and 9 seconds.
var Retries = remote.Backoff{Duration: time.Second, Factor: 3, Jitter: 0.1, Steps: 4}

// Access defines how registries are asked. The zero value works.
type Access struct {
	// Keychain has the credentials. Nil means those of the docker command's configuration.
	Keychain authn.Keychain
	// Retries are the pauses before a request is sent again. The zero value means Retries.
	Retries remote.Backoff
	// Patience is how long a registry may take to begin an answer, and to send LeastSent bytes of it. 0 means Patience.
	Patience time.Duration
	// MaxAnswer is the maximum size of an answer, in bytes. A larger one is an ErrLimit. 0 means no limit.
	MaxAnswer int64
}

// Options returns the options of requests. The caller adds a context.
func (a Access) Options() []remote.Option {
	if a.Keychain == nil {
		a.Keychain = authn.DefaultKeychain
	}
	if a.Retries.Steps == 0 {
		a.Retries = Retries
	}
	if a.Patience == 0 {
		a.Patience = Patience
	}
	var sender http.RoundTripper = Impatient{connections(), a.Patience}
	if a.MaxAnswer > 0 {
		sender = bounded{sender, a.MaxAnswer}
	}
	return []remote.Option{
		remote.WithAuthFromKeychain(a.Keychain), remote.WithRetryBackoff(a.Retries), remote.WithUserAgent("fumehood"), remote.WithTransport(sender),
	}
}

// Failure returns the error of a request to a registry, with a class and a hint. Errors that have a class, and those after the
// end of ctx, are returned unchanged.
func Failure(ctx context.Context, host string, err error) error {
	if err == nil || ctx.Err() != nil || classed(err) {
		return err
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		text := http.StatusText(answer.StatusCode)
		if len(answer.Errors) > 0 {
			text = answer.Errors[0].String() // the answer itself may be long
		}
		class, hint := fumehood.ErrInfrastructure, ""
		switch status := answer.StatusCode; {
		case status == http.StatusTooManyRequests || status >= 500:
			hint = "the registry is busy or broken; try again later"
		case status == http.StatusNotFound:
			class, hint = fumehood.ErrConfig, "check the image's name and tag, and log in if it is private"
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			class, hint = fumehood.ErrConfig, "check the image's name and tag, or log in to the registry: docker login "+host
		}
		return fail(class, hint, "%s: %d %.300s", host, answer.StatusCode, strings.ToValidUTF8(text, "?"))
	}
	if late, ok := errors.AsType[*Silent](err); ok {
		return fail(fumehood.ErrUnavailable, "check the image's name and this machine's network, or try again later", "the registry does not answer: %w", late)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		hint := "check the image's name and this machine's network, or use a file: docker-archive:FILE, oci:FOLDER"
		return fail(fumehood.ErrUnavailable, hint, "no image of that name here, and cannot reach the registry: %w", err)
	}
	return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
}

// classed reports whether an error has one of the module's classes.
func classed(err error) bool {
	_, ok := errors.AsType[*fumehood.Error](err)
	return ok
}

func fail(class error, hint, format string, args ...any) error {
	return &fumehood.Error{Class: class, Err: fmt.Errorf(format, args...), Hint: hint}
}
