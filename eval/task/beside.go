package task

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
)

// Beside starts a second sandbox for the attempt, for example for a grader, calls f with it, and removes it. The
// sandbox counts toward RunOptions.MaxSandboxes and MaxStarting. Beside may wait for other sandboxes to end;
// RunOptions.Timeout does not include that time. An attempt has at most one such sandbox at a time, and only if
// Sample.Others is not empty. The spec must not set Name, Keep or labels of the task. The sandbox is removed even
// if the task keeps its sandboxes; a failed removal is reported by Options.Removed. An error of f is returned
// unchanged.
func (a *Attempt) Beside(ctx context.Context, spec fumehood.Spec, f func(context.Context, fumehood.Sandbox) error) error {
	op := fmt.Sprintf("start a second sandbox for sample %q, epoch %d", a.Sample.ID, a.Epoch)
	if err := a.checkBeside(spec); err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	defer a.beside.Store(false)
	r := a.run
	a.limit.pause() // the time limit does not include the wait for a slot
	err := r.room.Acquire(ctx, 1)
	a.limit.resume()
	if err != nil {
		return opError(ctx, op, fumehood.Cause(ctx))
	}
	defer r.room.Release(1)
	if i := slices.IndexFunc(a.Sample.Others, func(other fumehood.Spec) bool { return reflect.DeepEqual(other, spec) }); i >= 0 {
		if images := r.task.images(sandboxOf{a.Sample.ID, i}); images != nil {
			spec.Images = images
		}
	}
	spec.Labels = r.task.labels(spec.Labels, KeyOf(a.Sandbox.Info()))
	sb, err := r.launch(ctx, op, spec)
	if errors.Is(err, fumehood.ErrBroken) { // nothing of the attempt ran in it yet
		err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New(err.Error())}
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.task.End(ctx, sb) }() // Options.Removed reports errors, and the end of the run retries
	return f(ctx, sb)
}

// checkBeside rejects invalid calls of Beside. Otherwise it marks the attempt as having a second sandbox.
func (a *Attempt) checkBeside(spec fumehood.Spec) error {
	switch {
	case a.run == nil:
		return errors.New("the attempt was not created by Run")
	case len(a.Sample.Others) == 0:
		return errors.New("the sample has no Others: it must list the specs of second sandboxes")
	case !unset(spec):
		return errNotUnset
	case !a.beside.CompareAndSwap(false, true):
		return errors.New("the attempt already has a second sandbox")
	}
	return nil
}

// allowance is a time limit that can be paused. A nil allowance has no limit.
type allowance struct {
	left  time.Duration // remaining time at the last resume
	since time.Time     // time of the last resume
	timer *time.Timer
}

func newAllowance(limit time.Duration, over func()) *allowance {
	return &allowance{limit, time.Now(), time.AfterFunc(limit, over)}
}

func (l *allowance) pause() {
	if l != nil && l.timer.Stop() {
		l.left -= time.Since(l.since)
	}
}

// resume continues after a pause. If the limit had expired before, over is called again.
func (l *allowance) resume() {
	if l != nil {
		l.since = time.Now()
		l.timer.Reset(l.left)
	}
}
