package provider

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestClassify(t *testing.T) {
	live := t.Context()
	over, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	cancel(why)
	plain := errors.New("connection reset")
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want error
		is   error // the cause that errors.Is must find
	}{
		{"no class: infrastructure", live, plain, fumehood.ErrInfrastructure, plain},
		{"a class is kept", live, &fumehood.Error{Class: fumehood.ErrNotFound, Err: plain}, fumehood.ErrNotFound, plain},
		{"a wrapped class is kept", live, fmt.Errorf("x: %w", fumehood.ErrUnavailable), fumehood.ErrUnavailable, fumehood.ErrUnavailable},
		{"context ended: canceled", over, plain, fumehood.ErrCanceled, why},
		{"so is an infrastructure error", over, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: plain}, fumehood.ErrCanceled, why},
		{"so is a canceled reader", over, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("read the content: %w", why)}, fumehood.ErrCanceled, why},
		{"by whichever word", over, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("read the content: %w", context.Canceled)}, fumehood.ErrCanceled, why},
		{"but no other class", over, &fumehood.Error{Class: fumehood.ErrNotFound, Err: plain}, fumehood.ErrNotFound, plain},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := classify(c.ctx, c.err, "read", "web", "a.txt")
			var e *fumehood.Error
			if !errors.As(got, &e) || e.Op != "read" || e.Service != "web" {
				t.Fatalf("the place is missing: %#v", got)
			}
			if !errors.Is(fumehood.ClassOf(got), c.want) || !errors.Is(got, c.is) {
				t.Errorf("got %v of class %v, want %v", got, fumehood.ClassOf(got), c.want)
			}
		})
	}
	if err := classify(live, nil, "read", "web", ""); err != nil {
		t.Errorf("no error became %v", err)
	}
	inner := &fumehood.Error{Class: fumehood.ErrPermission, Err: plain, Hint: "ask"}
	if got, want := classify(live, inner, "read", "web", "a.txt").Error(), "read a.txt in service web: connection reset (ask)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
