package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
)

// phaseTimeout bounds all pulls, and all builds, of a project that sets no timeout.
const phaseTimeout = time.Hour

// WithLimit runs a phase of a start, "pull" or "build", with a time limit. 0 means one hour. If the limit ended the phase,
// the error is an ErrLimit that names it.
func WithLimit(ctx context.Context, phase string, limit time.Duration, f func(context.Context) error) error {
	limit = cmp.Or(limit, phaseTimeout)
	begun := time.Now()
	late := errors.New("late")
	bounded, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := f(bounded)
	if err == nil || !errors.Is(context.Cause(bounded), late) {
		return err
	}
	e := &fumehood.Error{Op: phase + " images", Class: fumehood.ErrLimit, Err: fmt.Errorf("not done within the limit of %s, after %s", limit, time.Since(begun).Round(time.Second))}
	var known *fumehood.Error
	if errors.As(err, &known) {
		e.Op, e.Service = known.Op, known.Service
	}
	return e
}
