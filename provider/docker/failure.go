package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guests"
)

const (
	// lastLines is how many lines of a failed container's log its error includes.
	lastLines = 10
	// maxLine is the maximum length of each of these lines, in characters.
	maxLine = 400
)

// failing returns the error for a container that did not come up. The error includes the last lines of its log.
func (s *service) failing(ctx context.Context, c engine.State, op string, class error, what string) error {
	elapsed := time.Since(s.begun).Round(time.Millisecond)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%v after its start)", what, elapsed)
	if now, err := s.sb.p.engine.Inspect(ctx, c.ID); err == nil && now.Found != "" {
		b.WriteString("; its last check: " + readable(now.Found))
	}
	if log := s.sb.p.engine.LastLog(ctx, c, lastLines); strings.TrimSpace(log) != "" {
		b.WriteString("; its last lines:")
		for line := range strings.Lines(log) {
			b.WriteString("\n    " + readable(line))
		}
	}
	return s.failure(op, &fumehood.Error{Class: class, Err: errors.New(b.String())})
}

// seenWithin bounds the inspection of a container whose guest does not answer.
const seenWithin = 5 * time.Second

// seen adds diagnostics to the error about a guest that does not answer: the state of its container, the runtime, and
// what the guest wrote to its standard error.
func (s *service) seen(ctx context.Context, err error, complaint string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), seenWithin)
	defer cancel()
	what := "its container cannot be inspected"
	if state, ierr := s.sb.p.engine.Inspect(ctx, s.id); ierr == nil {
		what = "its container is " + state.Status
		if state.Status == "exited" {
			what += fmt.Sprintf(" with code %d", state.ExitCode)
		}
		if state.Runtime != "" {
			what += ", under the runtime " + state.Runtime
		}
	}
	return guests.Saying(fmt.Errorf("%w; %s", err, what), complaint)
}

// failure adds the operation and the service to an error.
func (s *service) failure(op string, err error) error {
	return &fumehood.Error{Op: op, Service: s.Name, Class: fumehood.ClassOf(err), Err: err}
}

// readable returns a line written by a container, without control characters that could affect a terminal.
func readable(line string) string {
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
