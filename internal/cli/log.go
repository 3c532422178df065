package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// logHandler writes a log record as one line for people: "lazaret: warning: text (key=value)".
type logHandler struct {
	mu    *sync.Mutex // shared by all that write to w
	w     io.Writer
	attrs []slog.Attr
}

func newLogHandler(w io.Writer) *logHandler { return &logHandler{mu: &sync.Mutex{}, w: w} }

// Enabled leaves debug messages out.
func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle writes one record.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString("lazaret: ")
	switch {
	case r.Level >= slog.LevelError:
		b.WriteString("error: ")
	case r.Level >= slog.LevelWarn:
		b.WriteString("warning: ")
	}
	b.WriteString(r.Message)
	var details []string
	add := func(a slog.Attr) bool {
		details = append(details, fmt.Sprintf("%s=%v", a.Key, a.Value))
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if details != nil {
		b.WriteString(" (" + strings.Join(details, ", ") + ")")
	}
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}

// WithAttrs returns a handler that adds attributes to each record.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{mu: h.mu, w: h.w, attrs: append(append([]slog.Attr{}, h.attrs...), attrs...)}
}

// WithGroup ignores groups: a line for people has no nesting.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
