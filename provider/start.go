package provider

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/fumehood/fumehood"
)

// Start starts a sandbox in one phase of the journal, "start". It names a sandbox without a name. The error of start gets
// an operation and a class if it lacks them; after the end of ctx it is an ErrCanceled.
func Start(ctx context.Context, spec fumehood.Spec, start func(context.Context, fumehood.Spec) (Backend, error)) (fumehood.Sandbox, error) {
	const op = "start sandbox"
	if ctx.Err() != nil {
		return nil, canceledError(ctx, op, "")
	}
	spec.Name = NameOf(spec)
	rec := NewRecorder(&spec)
	end := rec.Phase("start")
	b, err := start(ctx, spec)
	end(err)
	if err == nil {
		return New(b, spec, rec), nil
	}
	if ctx.Err() != nil {
		return nil, rec.StartError(canceledError(ctx, op, ""))
	}
	typed, ok := errors.AsType[*fumehood.Error](err)
	if !ok {
		typed = &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
	}
	typed.Op = cmp.Or(typed.Op, op)
	return nil, rec.StartError(typed)
}

// NameOf returns the name of a spec. Without one, it is random.
func NameOf(spec fumehood.Spec) string {
	return cmp.Or(spec.Name, "fumehood-"+strings.ToLower(rand.Text()[:12]))
}
