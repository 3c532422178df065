package provider

import (
	"context"
	"errors"

	"github.com/fumehood/fumehood"
)

// Unhealthy is in the chain of the error of a start in which a service became unhealthy, by its own health check. If
// that happens again in another sandbox, the check or the service is wrong, and not the infrastructure.
type Unhealthy struct {
	Service string
	Err     error
}

func (u *Unhealthy) Error() string { return u.Err.Error() }

// Unwrap returns the error with its class.
func (u *Unhealthy) Unwrap() error { return u.Err }

// ProcessLimit is in the chain of the ErrLimit of a command that was not started because the sandbox's limit on processes is
// reached. An evaluation counts that against the program.
type ProcessLimit struct{ Text string }

// ProcessLimitHint is the hint of that error.
const ProcessLimitHint = "kill the commands that have started them, or close the sandbox; or raise the limit (--pids)"

func (l *ProcessLimit) Error() string { return l.Text }

// canceledError returns the error of a call whose context ended, with the context's cause.
func canceledError(ctx context.Context, op, service string) error {
	return &fumehood.Error{Op: op, Service: service, Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
}

// classify adds the operation and a class to err. A provider's error without a class becomes an infrastructure
// failure, or ErrCanceled if the caller's context has ended. An error caused by the end of that context is an
// ErrCanceled whatever its class.
func classify(ctx context.Context, err error, op, service, path string) error {
	if err == nil {
		return nil
	}
	c := fumehood.ClassOf(err)
	if ctx.Err() != nil && (c == nil || errors.Is(c, fumehood.ErrInfrastructure) || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return canceledError(ctx, op, service)
	}
	if c == nil {
		c = fumehood.ErrInfrastructure
	}
	var inner *fumehood.Error
	if errors.As(err, &inner) && any(inner) == any(err) && inner.Op == "" { // not if wrapped by another error
		return &fumehood.Error{Op: op, Service: service, Path: path, Class: inner.Class, Err: inner.Err, Hint: inner.Hint}
	}
	return &fumehood.Error{Op: op, Service: service, Path: path, Class: c, Err: err}
}
