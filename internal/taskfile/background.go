package taskfile

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider"
)

// endTimeout bounds the time to end the steps in the background, in addition to the grace period of each. A guest
// that does not respond is given up after a minute, and the rest of the time is for finding out its state.
const endTimeout = 90 * time.Second

// background holds the steps of an attempt that run in the background.
type background struct {
	begun  []running
	inputs []io.Closer
}

// running is a step that was started after so many others had been recorded.
type running struct {
	process fumehood.Process
	after   int
	task.Step
}

// end kills the steps that still run, and records them among the other steps, in the order of their start. A step
// that cannot be killed, such as one run by the Engine's exec, is left out, unless the sandbox was lost anyway: it ends
// with the sandbox. Canceling ctx does not stop end.
func (b *background) end(ctx context.Context, a *task.Attempt) error {
	limit := endTimeout
	for _, r := range b.begun {
		limit = max(limit, endTimeout+provider.KillAfter(&r.Cmd))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	kills := make([]error, len(b.begun))
	var all sync.WaitGroup
	for i, r := range b.begun {
		all.Go(func() { kills[i] = r.process.Kill(ctx) })
	}
	all.Wait()
	var errs []error
	lost := slices.ContainsFunc(a.Steps, func(s task.Step) bool { return s.Result.Outcome == fumehood.Lost })
	for i, r := range slices.Backward(b.begun) {
		err := kills[i]
		if err == nil {
			r.Result, err = r.process.Wait(ctx)
		}
		switch {
		case errors.Is(err, fumehood.ErrCanceled) && ctx.Err() == nil: // the attempt was canceled
		case err != nil:
			errs = append(errs, err)
		case r.Result.Outcome == fumehood.Lost && r.Result.Leaked && !r.Result.CausedInside && !lost:
		default:
			a.Steps = slices.Insert(a.Steps, r.after, r.Step)
		}
	}
	for _, in := range b.inputs {
		errs = append(errs, in.Close())
	}
	return errors.Join(errs...)
}
