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

// Beside starts another sandbox for the attempt, calls f with it, and removes it: one that grades, say. It counts in
// RunOptions.MaxSandboxes and MaxStarting, so that it may wait for others to end, which RunOptions.Timeout does not
// count. An attempt has one at a time, of a spec whose Name and Keep, and labels of the task's, are not set, and only where Sample.Others
// has some. It is removed even where the task keeps its sandboxes; trouble with that is told by Options.Removed. An error
// of f is returned as it is.
func (a *Attempt) Beside(ctx context.Context, what fumehood.Spec, f func(context.Context, fumehood.Sandbox) error) error {
	op := fmt.Sprintf("start a sandbox beside sample %q, epoch %d", a.Sample.ID, a.Epoch)
	if err := a.checkBeside(what); err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	defer a.beside.Store(false)
	r := a.run
	a.limit.pause() // others are in its way
	err := r.room.Acquire(ctx, 1)
	a.limit.resume()
	if err != nil {
		return failed(ctx, op, fumehood.Ended(ctx))
	}
	defer r.room.Release(1)
	if i := slices.IndexFunc(a.Sample.Others, func(other fumehood.Spec) bool { return reflect.DeepEqual(other, what) }); i >= 0 {
		if images := r.task.images(sandboxOf{a.Sample.ID, i}); images != nil {
			what.Images = images
		}
	}
	what.Labels = r.task.labels(what.Labels, KeyOf(a.Sandbox.Info()))
	sb, err := r.launch(ctx, op, what)
	if errors.Is(err, fumehood.ErrBroken) { // nothing of the attempt's was in it yet
		err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New(err.Error())}
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.task.End(ctx, sb) }() // told by Options.Removed, and tried once more at the end of the run
	return f(ctx, sb)
}

// checkBeside refuses a second sandbox that cannot be, or else takes the attempt's place for one.
func (a *Attempt) checkBeside(what fumehood.Spec) error {
	switch {
	case a.run == nil:
		return errors.New("the attempt is none of Run's")
	case len(a.Sample.Others) == 0:
		return errors.New("the sample does not say in Others that it has further sandboxes")
	case !unset(what):
		return errNotUnset
	case !a.beside.CompareAndSwap(false, true):
		return errors.New("the attempt has one already")
	}
	return nil
}

// allowance is a limit of time that can be paused. A nil one has no end.
type allowance struct {
	left  time.Duration // when it was resumed
	since time.Time     // when that was
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

// resume goes on. Where all had been used before the pause, that is told again.
func (l *allowance) resume() {
	if l != nil {
		l.since = time.Now()
		l.timer.Reset(l.left)
	}
}
