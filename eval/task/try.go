package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/provider"
)

// retryDelay is the delay before the first retry: the cause may need time to recover. It doubles with each retry.
const retryDelay = 250 * time.Millisecond

// attempt runs an attempt, and retries it after a failure of class Infra. A service that becomes unhealthy in two tries
// in a row is the task's fault.
func (r *run) attempt(ctx context.Context, j job) SampleResult {
	res := SampleResult{Sample: j.sample.ID, Epoch: j.epoch, Metadata: maps.Clone(j.sample.Metadata), Started: time.Now().UTC().Round(0), Phases: map[string]float64{}}
	for delay := retryDelay; ; delay *= 2 {
		last := res.Error
		res.Score, res.Error, res.Steps, res.Grader = nil, nil, nil, nil
		r.try(ctx, j, &res)
		res.Error.repeats(last)
		if res.Error == nil || res.Error.Class != Infra || res.Tries > r.how.Retries {
			break
		}
		r.task.log.Warn("an attempt failed and is retried", "sample", res.Sample, "epoch", res.Epoch, "tries", res.Tries, "phase", res.Error.Phase, "error", res.Error.Text)
		wait := time.NewTimer(delay)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		if ctx.Err() != nil {
			res.Error.Class = Canceled // canceled before the retry
			break
		}
		r.updateProgress(func(p *Progress) { p.Running--; p.Starting++ })
		r.expect(j)
	}
	r.count(&res)
	return res
}

// try makes one try at an attempt, in its own sandbox.
func (r *run) try(ctx context.Context, j job, res *SampleResult) {
	running := false
	run := func() {
		if !running {
			running = true
			r.updateProgress(func(p *Progress) { p.Starting--; p.Running++ })
		}
	}
	defer run()
	if ctx.Err() != nil {
		res.Error = failure(ctx, "start", context.Cause(ctx))
		return
	}
	res.Tries++
	end := timePhase(res, "acquire")
	sb, err := r.acquire(ctx, j)
	end()
	if err != nil {
		res.Error = failure(ctx, "start", err)
		return
	}
	res.Sandbox = sb.Info().Name
	defer func() {
		// Options.Removed reports errors, and the end of the run retries the removal.
		defer timePhase(res, "remove")()
		_ = r.task.End(ctx, sb)
	}()
	end = timePhase(res, "setup")
	err = r.task.setUpSandbox(ctx, sb, j.sample)
	end()
	if err != nil {
		res.Error = failure(ctx, "start", err)
		return
	}
	run()
	r.judge(ctx, &Attempt{Sample: j.sample, Epoch: j.epoch, Try: res.Tries, Sandbox: sb, run: r}, res)
}

// acquire returns a sandbox that was started ahead, or starts one.
func (r *run) acquire(ctx context.Context, j job) (fumehood.Sandbox, error) {
	key := Key{j.sample.ID, j.epoch}
	if j.bucket != nil {
		if sb := r.pool.take(ctx, j.bucket); sb != nil {
			return r.task.assign(ctx, sb, key)
		}
	}
	spec, err := r.task.spec(j.sample, j.epoch)
	if err != nil {
		return nil, err
	}
	sb, err := r.launch(ctx, fmt.Sprintf("start sample %q, epoch %d", key.Sample, key.Epoch), spec)
	if err == nil && j.bucket != nil {
		r.pool.works(j.bucket)
	}
	return sb, err
}

// launch starts a sandbox, after waiting for a free slot.
func (r *run) launch(ctx context.Context, op string, spec fumehood.Spec) (fumehood.Sandbox, error) {
	select {
	case r.starts <- struct{}{}:
		defer func() { <-r.starts }()
	case <-ctx.Done():
		return nil, opError(ctx, op, fumehood.Cause(ctx))
	}
	return r.task.launch(ctx, op, spec)
}

// judge solves and scores the attempt.
func (r *run) judge(ctx context.Context, a *Attempt, res *SampleResult) {
	if r.how.Timeout > 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		a.limit = newAllowance(r.how.Timeout, func() { cancel(attemptLimit(r.how.Timeout)) })
		defer a.limit.pause()
	}
	end := timePhase(res, "solve")
	err := r.how.Solve(ctx, a)
	end()
	var lost error // error of the first lost step with an unknown cause
	for i, s := range a.Steps {
		if s.Result == nil {
			err = errors.Join(err, &fumehood.Error{Op: "solve", Class: fumehood.ErrConfig, Err: fmt.Errorf("step %d has no result", i+1)})
			continue
		}
		res.Steps = append(res.Steps, record(i, s, r.how.OutputCap))
		switch {
		case s.Result.Outcome != fumehood.Lost:
		case s.Result.CausedInside:
			res.Score = &Score{Reasons: []string{message(fmt.Sprintf("step %s %s", stepName(i, s), describeEnd(s.Result, s.Cmd.Timeout)))}}
		case err == nil && lost == nil:
			lost = &fumehood.Error{Op: "solve", Class: fumehood.ErrUnavailable, Err: fmt.Errorf("step %s %s", stepName(i, s), describeEnd(s.Result, s.Cmd.Timeout))}
		}
	}
	if res.Score == nil && err == nil {
		err = lost
	}
	switch {
	case res.Score != nil && (err == nil || ctx.Err() == nil): // regardless of other errors
		return
	case res.fails(ctx, err):
		return
	case err != nil:
		res.Score, res.Error = nil, failure(ctx, "solve", err)
		return
	case a.Unstarted != "":
		res.Score = &Score{Reasons: []string{message(a.Unstarted)}}
		return
	}
	end = timePhase(res, "score")
	score, err := r.how.Score(ctx, a)
	end()
	if a.Grader != nil && a.Grader.Result != nil {
		g := record(0, *a.Grader, r.how.OutputCap)
		res.Grader = &g
	}
	if err == nil {
		err = score.check()
	}
	if res.fails(ctx, err) {
		return
	}
	if err != nil {
		res.Error = failure(ctx, "score", err)
		return
	}
	res.Score = &score
}

// fails scores an attempt 0 if it caused the error itself: it broke its sandbox or the grader's, or exceeded its
// time limit. If the daemon fails within that time, the attempt did not cause the error.
func (r *SampleResult) fails(ctx context.Context, err error) bool {
	var limit attemptLimit
	switch late := errors.As(context.Cause(ctx), &limit); {
	case err == nil, ctx.Err() != nil && !late:
		return false
	case errors.Is(err, fumehood.ErrBroken), usedUp(err):
	case late && !isInfra(fumehood.ClassOf(err)):
		err = limit
	default:
		return false
	}
	r.Score = &Score{Reasons: []string{message(err.Error())}}
	return true
}

// usedUp reports whether an error is that the processes of a sandbox are used up.
func usedUp(err error) bool {
	_, is := errors.AsType[*provider.ProcessLimit](err)
	return is
}

// timePhase starts timing a phase. Calling end adds the time to the result.
func timePhase(res *SampleResult, phase string) (end func()) {
	began := time.Now()
	return func() { res.Phases[phase] += time.Since(began).Seconds() }
}

// attemptLimit is the cause of the cancellation of an attempt that exceeded its time limit.
type attemptLimit time.Duration

func (l attemptLimit) Error() string {
	return fmt.Sprintf("the attempt took longer than its limit of %s", time.Duration(l))
}

// maxFailure is the maximum length of the text of a Failure in bytes.
const maxFailure = 4 << 10

// failure returns the Failure for an error of an attempt with that context.
func failure(ctx context.Context, phase string, err error) *Failure {
	f := &Failure{Class: classOf(ctx, err), Phase: phase, Text: message(err.Error())}
	var u *provider.Unhealthy
	if errors.As(err, &u) {
		f.unhealthy = u.Service
	}
	return f
}

// repeats makes a failure one of class Config if the same service became unhealthy in the try before. Both may be nil.
func (f *Failure) repeats(last *Failure) {
	if f == nil || last == nil || f.Class != Infra || f.unhealthy == "" || f.unhealthy != last.unhealthy || f.Phase != last.Phase {
		return
	}
	f.Class = Config
	f.Text = message(fmt.Sprintf("service %s became unhealthy in two sandboxes in a row, so its health check or the service is wrong: %s", f.unhealthy, f.Text))
}

// message returns a text for people, of about maxFailure bytes at most. Bytes that are not UTF-8, as in names of files, are
// written as \xNN.
func message(text string) string { return strings.ToValidUTF8(short(jsontext.Escape(text)), "") }

// short limits a text to about maxFailure bytes. It keeps the beginning and the end.
func short(text string) string {
	if len(text) <= maxFailure {
		return text
	}
	return text[:maxFailure/2] + "\n...\n" + text[len(text)-maxFailure/2:]
}

// isInfra reports whether errors of this class are caused by the infrastructure, and not by a program.
func isInfra(class error) bool {
	return errors.Is(class, fumehood.ErrInfrastructure) || errors.Is(class, fumehood.ErrUnavailable)
}

func classOf(ctx context.Context, err error) string {
	var limit attemptLimit
	if ctx.Err() != nil && !errors.As(context.Cause(ctx), &limit) {
		return Canceled
	}
	switch class := fumehood.ClassOf(err); {
	case class == nil, isInfra(class):
		return Infra
	case errors.Is(class, fumehood.ErrLimit), errors.Is(class, fumehood.ErrCanceled):
		return Limit // the run was not canceled: a time limit set by the solver or scorer expired
	}
	return Config
}

// record returns the recorded form of a step.
func record(i int, s Step, most int64) StepResult {
	r := StepResult{Name: stepName(i, s), Result: *s.Result}
	r.Stdout, r.Stderr = endOf(r.Stdout, most), endOf(r.Stderr, most)
	return r
}

func stepName(i int, s Step) string {
	if s.Name == "" {
		return strconv.Itoa(i + 1)
	}
	return jsontext.Escape(s.Name)
}

// endOf returns a copy of the end of an output, of at most that many bytes, without a part of a character.
func endOf(o fumehood.Output, most int64) fumehood.Output {
	have := int64(len(o.Bytes))
	end := fumehood.Output{Bytes: o.Bytes[max(have-most, 0):], Total: max(o.Total, have)}
	end.Bytes = bytes.Clone(end.Whole())
	return end
}
