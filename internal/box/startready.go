package box

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

const (
	// readyTimeout bounds each wait for a service, unless the start bounds them all.
	readyTimeout = 600 * time.Second
	// settleTime is how long a program without a health check has to run to count as started.
	settleTime = 250 * time.Millisecond
	// evidenceWithin bounds the search for evidence about a failed container.
	evidenceWithin = 30 * time.Second
	// LastLines is how many lines of a failed container's log an error includes.
	LastLines = 10
	// maxLine is the maximum length of each of these lines, in characters.
	maxLine = 400
)

// settles makes sure that a program other than ours has not exited immediately, and that commands can run in the
// default service.
func (s *Service) settles(ctx context.Context) error {
	if s.Serves {
		return nil
	}
	if s.commanded() {
		if err := s.withTimeout(ctx, "start the guest", "it does not answer", s.settle); err != nil {
			return err
		}
	}
	within, cancel := context.WithDeadline(ctx, s.begun.Add(settleTime))
	defer cancel()
	for _, u := range s.Units {
		if u.Check() == nil {
			u.Until(within, hasCompleted)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// settle waits until the guest answers that an exec starts.
func (s *Service) settle(ctx context.Context) error {
	if s.Direct {
		return nil
	}
	_, err := s.Guests.Own(ctx)
	if err == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) { // the service has died, or the start has ended otherwise
			return context.Cause(ctx)
		}
	case <-time.After(DeathWait):
	}
	return s.Failure("start the guest", err)
}

func hasCompleted(st State) bool { return st.Died && st.Exit == 0 }

// isHealthy reports whether a container is healthy. A container that has completed counts as healthy.
func isHealthy(st State) bool { return st.Health == Healthy || hasCompleted(st) }

// commanded reports whether commands run in the service by default, so that it must keep running.
func (s *Service) commanded() bool { return s == s.order.services[0] }

// await waits until the state of a container is as wanted. It does not detect failures: guard does, and cancels ctx.
func (s *Service) await(ctx context.Context, u Unit, op string, usual time.Duration, wanted func(State) bool) error {
	deadline, limit := s.limit(usual)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	_, ok := u.Until(within, wanted)
	switch {
	case ok:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return s.failing(ctx, u, op, fumehood.ErrLimit, fmt.Sprintf("not reached after %v, which is the limit", limit))
}

// limit returns the deadline of a wait for the service, and the duration of that limit. usual is the duration if each
// service has its own limit.
func (s *Service) limit(usual time.Duration) (time.Time, time.Duration) {
	if !s.order.deadline.IsZero() {
		return s.order.deadline, s.order.within
	}
	return s.begun.Add(usual), usual
}

// withTimeout bounds a step of the service's start that has no timeout of its own.
func (s *Service) withTimeout(ctx context.Context, op, late string, step func(context.Context) error) error {
	deadline, limit := s.limit(readyTimeout)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := step(within)
	if err == nil || ctx.Err() != nil || within.Err() == nil {
		return err
	}
	return s.failing(ctx, s.Units[0], op, fumehood.ErrLimit, fmt.Sprintf("%s after %v, which is the limit", late, limit))
}

// guard waits until a container of the service fails, and returns the reason. A container fails if it becomes
// unhealthy, or exits with a code other than 0 and is not restarted. In the default service, it fails if it exits with
// any code and is not restarted. guard returns nil if guarding ends first; guarding is derived from ctx.
func (s *Service) guard(ctx, guarding context.Context, u Unit) error {
	for deaths := 0; ; {
		state, ok := u.Until(guarding, func(st State) bool { return st.Deaths > deaths || st.Health == Unhealthy })
		if !ok || ctx.Err() != nil {
			return nil
		}
		op := s.phase(u, state)
		if state.Deaths == deaths {
			return &provider.Unhealthy{Service: s.Name, Err: s.failing(ctx, u, op, fumehood.ErrUnavailable, "it is unhealthy")}
		}
		if state.Exit == 0 && !s.commanded() || u.Restarts(ctx) {
			deaths = state.Deaths
			continue
		}
		cause := fmt.Sprintf("it has exited with code %d", state.Exit)
		if s.commanded() {
			cause += ", and commands run in it: it is the default service"
		}
		return s.failing(ctx, u, op, fumehood.ErrUnavailable, cause)
	}
}

// phase returns what the start is waiting for with a container.
func (s *Service) phase(u Unit, now State) string {
	switch {
	case u.Check() != nil && now.Health != Healthy:
		return "wait until healthy"
	case s.oneShot:
		return "wait until completed"
	}
	return "start"
}

// failing returns the error for a container that did not come up. The error includes the last lines of its log.
func (s *Service) failing(ctx context.Context, u Unit, op string, class error, problem string) error {
	elapsed := time.Since(s.begun).Round(time.Millisecond)
	ctx, cancel := context.WithTimeout(ctx, evidenceWithin)
	defer cancel()
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%v after its start)", problem, elapsed)
	check, log := u.Evidence(ctx, LastLines)
	if check != "" {
		b.WriteString("; its last check: " + Readable(check))
	}
	if strings.TrimSpace(log) != "" {
		b.WriteString("; its last lines:")
		for line := range strings.Lines(log) {
			b.WriteString("\n    " + Readable(line))
		}
	}
	return s.Failure(op, &fumehood.Error{Class: class, Err: errors.New(b.String())})
}

// Failure adds an operation and the service to an error.
func (s *Service) Failure(op string, err error) error {
	return &fumehood.Error{Op: op, Service: s.Name, Class: fumehood.ClassOf(err), Err: err}
}

// Readable returns a line written by a container, without control characters that could affect a terminal.
func Readable(line string) string {
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return ' '
		}
		return r
	}, strings.TrimSpace(line))
	if r := []rune(line); len(r) > maxLine {
		return string(r[:maxLine]) + "..."
	}
	return line
}
