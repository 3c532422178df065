package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// guarded is the Engine's client with a deadline for every call. It retries the calls that calls.go allows to be
// retried, and changes in two ways how objects are created (see Guard).
type guarded struct {
	client.APIClient
	log      *slog.Logger
	latency  func(time.Duration)
	seccomp  string            // the profile of containers, as JSON; empty means the Engine's
	profiles map[string]string // others, by name
	unheld   func(labels map[string]string, warnings []string) error
	speedup  Speedup
	secret   Secret
	met      *atomic.Bool // an Engine has answered before
}

// silent is the error of a call to which the Engine did not respond in time.
type silent struct {
	limit time.Duration
	files bool // the call opens files of a container
}

func (s *silent) Error() string {
	return fmt.Sprintf("the Engine has not answered within %v", s.limit.Round(time.Millisecond))
}

// tried is the error of a call that was made more than once.
type tried struct {
	error
	times int
}

func (t *tried) Error() string { return fmt.Sprintf("%s (tried %d times)", t.error.Error(), t.times) }
func (t *tried) Unwrap() error { return t.error }

// watchdog cancels the context of a call if nothing is received for too long.
type watchdog struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	cause  func() error
}

func newWatchdog(ctx context.Context, s *silent) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	v := &watchdog{limit: s.limit, cancel: cancel, cause: func() error { return context.Cause(ctx) }}
	v.timer = time.AfterFunc(s.limit, func() { cancel(s) })
	return ctx, v
}

// watch starts the timer; rest stops it.
func (v *watchdog) watch() { v.timer.Reset(v.limit) }
func (v *watchdog) rest()  { v.timer.Stop() }

// end releases the timer and the context. The call must be over.
func (v *watchdog) end() {
	v.timer.Stop()
	v.cancel(nil)
}

// explain returns the timeout in place of an error that the timeout has caused.
func (v *watchdog) explain(err error) error {
	var s *silent
	if err != nil && !errors.Is(err, io.EOF) && errors.As(v.cause(), &s) {
		return s
	}
	return err
}

// do makes a call whose answer is complete when f returns. object names what the call is about, for messages.
func do[T any](ctx context.Context, g *guarded, c call, object string, f func(context.Context) (T, error)) (T, error) {
	res, v, err := begin(ctx, g, c, object, func(ctx context.Context, _ *watchdog) (T, error) { return f(ctx) })
	if v != nil {
		v.end()
	}
	return res, err
}

// about makes a call about one object. Its answer is complete when f returns.
func about[O, T any](ctx context.Context, g *guarded, c call, f func(context.Context, string, O) (T, error), object string, opts O) (T, error) {
	return do(ctx, g, c, object, func(ctx context.Context) (T, error) { return f(ctx, object, opts) })
}

// ask makes a call that has only options. Its answer is complete when f returns.
func ask[O, T any](ctx context.Context, g *guarded, c call, f func(context.Context, O) (T, error), opts O) (T, error) {
	return do(ctx, g, c, "", func(ctx context.Context) (T, error) { return f(ctx, opts) })
}

// begin makes a call whose answer may stream. The stream lives until the caller ends the returned watchdog. The
// watchdog is nil if there is an error.
func begin[T any](ctx context.Context, g *guarded, c call, object string, f func(context.Context, *watchdog) (T, error)) (T, *watchdog, error) {
	for n := 1; ; n++ {
		var none T
		if ctx.Err() != nil {
			return none, nil, ctx.Err()
		}
		within := ctx
		if c.whole {
			within = context.WithoutCancel(ctx)
		}
		var left time.Duration
		if deadline, ok := within.Deadline(); ok {
			left = time.Until(deadline)
		}
		began := time.Now()
		within, v := newWatchdog(within, &silent{limit: c.patience(n, left, g.speedup), files: c.again == torn})
		res, err := f(within, v)
		if c.prompt && g.latency != nil {
			g.latency(time.Since(began))
		}
		if err == nil {
			g.met.Store(true)
			v.rest()
			return res, v, nil
		}
		err = v.explain(err)
		v.end()
		if n == attempts || ctx.Err() != nil || !g.makesSense(c, err) {
			if n > 1 {
				err = &tried{err, n}
			}
			return none, nil, err
		}
		g.log.Warn("retrying Engine call", "call", c.name, "object", object, "attempt", n+1, "error", err)
		select {
		case <-time.After(g.speedup.Of(pause(n)/2 + rand.N(pause(n)))):
		case <-ctx.Done():
			return none, nil, &tried{err, n}
		}
	}
}

// makesSense reports whether a call that failed with err should be retried.
func (g *guarded) makesSense(c call, err error) bool {
	switch {
	case c.again == never:
		return false
	case isConnectionBroken(err):
		return true
	case isSilent(err):
		return c.again != torn
	case client.IsErrConnectionFailed(err):
		return g.met.Load() // a known daemon may be restarting; otherwise there is no daemon
	}
	return c.again == failed && isPassing(err)
}

// isUnclear reports whether after err the Engine may or may not have done what it was asked for.
func isUnclear(err error) bool { return isSilent(err) || isConnectionBroken(err) }

func isSilent(err error) bool {
	var s *silent
	return errors.As(err, &s)
}

// isPassing reports whether err is an error of the Engine itself that a retry may not meet.
func isPassing(err error) bool {
	return errdefs.IsInternal(err) && !isLasting(err) || errdefs.IsUnavailable(err)
}

// body is the body of a streaming answer.
type body struct {
	io.ReadCloser
	v        *watchdog
	mayPause bool // pauses are not limited
}

func (b body) Read(p []byte) (int, error) {
	if b.mayPause {
		return b.ReadCloser.Read(p)
	}
	b.v.watch()
	defer b.v.rest()
	n, err := b.ReadCloser.Read(p)
	return n, b.v.explain(err)
}

func (b body) Close() error {
	defer b.v.end()
	return b.ReadCloser.Close()
}

// sending is what the caller uploads. The time that the caller takes to provide it does not count.
type sending struct {
	io.Reader
	v *watchdog
}

func (s sending) Read(p []byte) (int, error) {
	s.v.rest()
	defer s.v.watch()
	return s.Reader.Read(p)
}

// hijack makes a call that takes over its connection. The client does not close a connection that waits for the
// Engine's answer. If the call is given up, the goroutine closes the connection as soon as the answer or the
// connection's end arrives.
func hijack[T any](ctx context.Context, g *guarded, c call, object string, f func(context.Context) (T, error), drop func(T)) (T, error) {
	type answer struct {
		res T
		err error
	}
	return do(ctx, g, c, object, func(within context.Context) (T, error) {
		answers, given := make(chan answer), make(chan struct{})
		defer close(given)
		go func() {
			// Don't use the watchdog's context, which ends with this call: some connections end with their context.
			res, err := f(ctx)
			select {
			case answers <- answer{res, err}:
			case <-given:
				if err == nil {
					drop(res)
				}
			}
		}()
		select {
		case a := <-answers:
			return a.res, a.err
		case <-within.Done():
			var none T
			return none, within.Err()
		}
	})
}
