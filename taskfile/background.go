package taskfile

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/task"
)

// endTimeout bounds the end of a step in the background.
const endTimeout = 30 * time.Second

// background are the steps of an attempt that run beside the others.
type background struct {
	begun  []running
	inputs []io.Closer
}

// running is a step that was started when so many others had been recorded.
type running struct {
	process *fumehood.Process
	after   int
	task.Step
}

// end kills what still runs, and records it among the other steps, in the order in which they were begun. One that
// cannot be killed, as by the Engine's exec, is left out: it ends with the sandbox. It outlives the cancellation of ctx.
func (b *background) end(ctx context.Context, a *task.Attempt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	var errs []error
	for _, r := range slices.Backward(b.begun) {
		err := r.process.Kill(ctx)
		if err == nil {
			r.Result, err = r.process.Wait(ctx)
		}
		switch {
		case errors.Is(err, fumehood.ErrCancelled) && ctx.Err() == nil: // the attempt was
		case err != nil:
			errs = append(errs, err)
		case r.Result.Outcome == fumehood.Lost && r.Result.Unkilled && !r.Result.Inside:
		default:
			a.Steps = slices.Insert(a.Steps, r.after, r.Step)
		}
	}
	for _, in := range b.inputs {
		errs = append(errs, in.Close())
	}
	return errors.Join(errs...)
}
