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
)

const (
	// lastLines is how many lines of a failed container's log its error tells.
	lastLines = 10
	// maxLine bounds each, in characters.
	maxLine = 400
)

// failing makes the error of a container that did not come up, with what it has told last.
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

// failure says of what service an error is.
func (s *service) failure(op string, err error) error {
	return &fumehood.Error{Op: op, Service: s.Name, Class: fumehood.ClassOf(err), Err: err}
}

// readable is a line that a container wrote, without what could play tricks on a terminal.
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
