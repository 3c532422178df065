package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

const (
	sampleCount = 200
	// warmCount is the number of samples that measure the wait for a sandbox that was started ahead. Each takes long
	// enough for the next sandbox to become ready.
	warmCount = 8
	warmRow   = "a sandbox that was started ahead"
	// startCount is the number of sandboxes that are started startsAtOnce at once.
	startCount   = 64
	startsAtOnce = 8
	// sampleRounds is the number of rounds in which the rows about samples are measured. They take long, and use many
	// sandboxes each.
	sampleRounds = 3
)

// atOnce is the number of concurrent containers in the rows about samples.
var atOnce = 2 * runtime.NumCPU()

// samplesRow is an evaluation from start to end: for each sample a container, one command in it, and its removal.
var samplesRow = fmt.Sprintf("%d samples, %d at once", sampleCount, atOnce)

// startsRow is the starts alone: the removals are not measured.
var startsRow = fmt.Sprintf("%d starts, %d at once", startCount, startsAtOnce)

// sampler is implemented by boxes whose contender can run samples, each in a separate container.
type sampler interface {
	samples(ctx context.Context) error
}

// sampleRows returns the rows about samples.
func sampleRows() []row {
	return []row{
		{name: samplesRow, times: 1, rounds: sampleRounds, step: func(ctx context.Context, b box) (time.Duration, error) {
			if s, ok := b.(sampler); ok {
				return 0, s.samples(ctx)
			}
			return 0, errNotMeasured
		}},
		{name: startsRow, times: 1, rounds: sampleRounds, step: func(ctx context.Context, b box) (time.Duration, error) {
			own, ok := b.(oursBox)
			if !ok || own.contender.called == byStream {
				return 0, errNotMeasured
			}
			return own.contender.starts(ctx)
		}},
		{name: warmRow, times: 1, rounds: sampleRounds, step: func(ctx context.Context, b box) (time.Duration, error) {
			own, ok := b.(oursBox)
			if !ok || own.contender.called != byFumehood {
				return 0, errNotMeasured
			}
			return own.warm(ctx)
		}},
	}
}

// samples runs the samples without starting sandboxes ahead, to show how much of the Engine's throughput is used.
func (b oursBox) samples(ctx context.Context) error {
	if b.contender.called == byStream {
		return errNotMeasured
	}
	all, err := b.contender.run(ctx, sampleCount, task.RunOptions{MaxSandboxes: atOnce, Ahead: -1, Solve: solveBy("true")})
	for _, r := range all {
		for phase, seconds := range r.Phases {
			b.contender.spent[phase] += seconds
		}
	}
	return err
}

// starts returns how long the starts of startsRow take.
func (o *oursContender) starts(ctx context.Context) (took time.Duration, err error) {
	started := make(chan fumehood.Sandbox, startCount)
	begin := time.Now()
	err = crowdOf(startsAtOnce, startCount, func() error {
		sb, err := o.sandbox(ctx)
		if err == nil {
			started <- sb
		}
		return err
	})
	took = time.Since(begin)
	close(started)
	for sb := range started {
		err = errors.Join(err, sb.Close(ctx))
	}
	return took, err
}

// shares returns the share of each phase in the time of all samples, or "" if none were run.
func shares(spent map[string]float64) string {
	all := 0.
	for _, seconds := range spent {
		all += seconds
	}
	var parts []string
	for _, phase := range []string{"acquire", "setup", "solve", "score", "remove"} {
		if all > 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f %%", phase, 100*spent[phase]/all))
		}
	}
	return strings.Join(parts, ", ")
}

// warm returns the median time that samples wait for their sandboxes if one has always been started ahead.
func (b oursBox) warm(ctx context.Context) (time.Duration, error) {
	all, err := b.contender.run(ctx, warmCount, task.RunOptions{MaxSandboxes: 2, Ahead: 1, Solve: solveBy("sleep", "3")})
	if err != nil {
		return 0, err
	}
	var waited []time.Duration
	for _, r := range all[1:] { // the first sample's sandbox was not started ahead
		waited = append(waited, time.Duration(r.Phases["acquire"]*float64(time.Second)))
	}
	return median(waited), nil
}

// run runs a number of samples, all of which must pass.
func (o *oursContender) run(ctx context.Context, samples int, how task.RunOptions) ([]task.SampleResult, error) {
	opts := task.Options{Name: "bench", Provider: o.provider, Spec: fumehood.Spec{Image: o.image}}
	for i := range samples {
		opts.Samples = append(opts.Samples, task.Sample{ID: strconv.Itoa(i)})
	}
	var all []task.SampleResult
	for r, err := range task.Run(ctx, opts, how) {
		switch {
		case err != nil:
			return nil, err
		case r.Error != nil:
			return nil, errors.New(r.Error.Text)
		case !r.Score.Passed() || r.Tries != 1:
			return nil, fmt.Errorf("sample %s: %v after %d tries", r.Sample, r.Score.Reasons, r.Tries)
		}
		all = append(all, r)
	}
	if len(all) != samples {
		return nil, fmt.Errorf("%d results of %d samples", len(all), samples)
	}
	return all, nil
}

func solveBy(args ...string) task.Solver {
	return func(ctx context.Context, a *task.Attempt) error {
		cmd := fumehood.Cmd{Args: args}
		res, err := a.Sandbox.Exec(ctx, cmd)
		if err == nil {
			a.Steps = append(a.Steps, task.Step{Cmd: cmd, Result: res})
		}
		return err
	}
}

// samples runs the containers of the samples in atOnce goroutines.
func (b bareBox) samples(ctx context.Context) error {
	return crowdOf(atOnce, sampleCount, func() error { return b.contender.sample(ctx) })
}

// sample starts a container, runs a command in it, and removes it.
func (b *bareContender) sample(ctx context.Context) error {
	box, err := b.start(ctx)
	if err != nil {
		return err
	}
	return errors.Join(command(ctx, box, 0, "true"), box.remove(ctx))
}
