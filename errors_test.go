package fumehood

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"testing"
)

func TestClassOf(t *testing.T) {
	for _, class := range classes {
		for name, err := range map[string]error{
			"itself":  class,
			"wrapped": fmt.Errorf("more: %w", class),
			"detail":  &Error{Op: "exec", Class: class, Err: errors.New("cause")},
			"deep":    fmt.Errorf("more: %w", &Error{Op: "exec", Class: class}),
			"joined":  errors.Join(errors.New("another"), class),
		} {
			if got := ClassOf(err); !errors.Is(got, class) {
				t.Errorf("%v, %s: ClassOf returns %v", class, name, got)
			}
		}
	}
	for _, err := range []error{nil, errors.New("of no class"), context.Canceled} {
		if got := ClassOf(err); got != nil {
			t.Errorf("ClassOf(%v) is %v, want none", err, got)
		}
	}
}

func TestClass_wider(t *testing.T) {
	for narrow, wide := range map[error]error{
		ErrProgramNotFound: ErrNotStarted, ErrNotExecutable: ErrNotStarted, ErrDirNotFound: ErrNotStarted,
		ErrUserNotFound: ErrNotStarted, ErrTooLarge: ErrLimit,
	} {
		if !errors.Is(narrow, wide) {
			t.Errorf("errors.Is(%v, %v) is false", narrow, wide)
		}
		if errors.Is(wide, narrow) {
			t.Errorf("errors.Is(%v, %v) is true", wide, narrow)
		}
	}
}

// An error of a class matches that class, its wider class if it has one, and no other.
func TestClass_others(t *testing.T) {
	for _, c := range classes {
		err := &Error{Op: "exec", Class: c}
		for _, other := range classes {
			want := c == other || errors.Unwrap(c) == other //nolint:errorlint // the classes themselves
			if errors.Is(err, other) != want {
				t.Errorf("errors.Is of %v and %v is %v", c, other, !want)
			}
		}
	}
	if !errors.Is(ErrBroken, ErrUnavailable) || errors.Is(ErrUnavailable, ErrBroken) {
		t.Error("ErrBroken is not a narrower ErrUnavailable")
	}
}

func TestError_standard(t *testing.T) {
	for class, want := range map[error]error{
		ErrNotFound: fs.ErrNotExist, ErrProgramNotFound: fs.ErrNotExist, ErrDirNotFound: nil, ErrPermission: fs.ErrPermission,
		ErrExists: fs.ErrExist, ErrNotEmpty: fs.ErrExist, ErrUnsupported: errors.ErrUnsupported,
	} {
		err := fmt.Errorf("outer: %w", &Error{Op: "read", Class: class})
		if want != nil && !errors.Is(err, want) {
			t.Errorf("errors.Is(%v, %v) is false", err, want)
		}
		for _, other := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrExist, fs.ErrClosed, errors.ErrUnsupported, context.Canceled} {
			if !errors.Is(want, other) && errors.Is(err, other) {
				t.Errorf("errors.Is(%v, %v) is true", err, other)
			}
		}
	}
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := Cause(ctx); err != nil {
		t.Errorf("before the end of the context: %v", err)
	}
	cancel(why)
	err := &Error{Op: "exec", Class: ErrCanceled, Err: Cause(ctx)}
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || errors.Is(err, context.DeadlineExceeded) || err.Error() != "exec: changed my mind" {
		t.Errorf("got %v", err)
	}
	ctx, stop := context.WithTimeoutCause(t.Context(), 0, why)
	defer stop()
	if err := Cause(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestError_Code(t *testing.T) {
	seen := map[Code]bool{}
	for _, class := range classes {
		err := &Error{Op: "exec", Class: class}
		code := err.Code()
		if seen[code] || CodeOf(fmt.Errorf("outer: %w", err)) != code || !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(string(code)) {
			t.Errorf("%v: %q", class, code)
		}
		seen[code] = true
	}
	if CodeOf(nil) != "" || CodeOf(errors.New("any")) != CodeInfrastructure {
		t.Errorf("CodeOf(nil) is %q, of an error without class %q", CodeOf(nil), CodeOf(errors.New("any")))
	}
}

func TestError_Error(t *testing.T) {
	cause := errors.New("disk on fire")
	for want, err := range map[string]*Error{
		"read: disk on fire": {Op: "read", Class: ErrInfrastructure, Err: cause},
		"read: not found":    {Op: "read", Class: ErrNotFound},
		"read":               {Op: "read"},
		"disk on fire":       {Class: ErrInfrastructure, Err: cause},
		"not found":          {Class: ErrNotFound},
		"read a.txt in service web: disk on fire (put it out)": {
			Op: "read", Path: "a.txt", Service: "web", Class: ErrInfrastructure, Err: cause, Hint: "put it out",
		},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err.Err != nil && !errors.Is(err, cause) {
			t.Errorf("%q: the cause is not wrapped", want)
		}
	}
}
