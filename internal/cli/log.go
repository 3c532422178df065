package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// The formats of the log.
const (
	logText = "text"
	logJSON = "json"
)

// logLevels are the levels by name.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// setUpLog sets up the log as the flags specify.
func (a *commandLine) setUpLog() error {
	if a.logFormat != logText && a.logFormat != logJSON {
		return usageError("--log-format %q is neither text nor json", a.logFormat)
	}
	a.log = slog.New(a.logHandler())
	if _, ok := logLevels[a.logLevel]; !ok {
		return usageError("--log-level %q is not debug, info, warn or error", a.logLevel)
	}
	return nil
}

// logHandler returns a handler that logs to a.Err with the format and level that the flags specify.
func (a *commandLine) logHandler() slog.Handler {
	level := logLevels[a.logLevel] // info if the level is unknown
	if a.logFormat == logJSON {
		return slog.NewJSONHandler(a.Err, &slog.HandlerOptions{Level: level})
	}
	return newLogHandler(a.Err, level)
}

// tell logs a formatted message at level info.
func (a *commandLine) tell(format string, args ...any) { a.log.Info(fmt.Sprintf(format, args...)) }

// quietly turns off the providers' log, unless it is at level debug. Commands that start no sandbox need no warnings
// about, for example, an old Engine.
func (a *commandLine) quietly() { a.quiet = true }

// providerLog returns the logger for providers.
func (a *commandLine) providerLog() *slog.Logger {
	if a.quiet && a.logLevel != "debug" {
		return slog.New(slog.DiscardHandler)
	}
	return a.log
}

// logHandler writes a log record as a line for people: "fumehood: warning: text (key=value)".
type logHandler struct {
	mu    *sync.Mutex // shared by all handlers that write to w
	w     io.Writer
	level slog.Level
	attrs []slog.Attr
}

func newLogHandler(w io.Writer, level slog.Level) *logHandler {
	return &logHandler{mu: &sync.Mutex{}, w: w, level: level}
}

// Enabled reports whether l is at or above the handler's level.
func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle writes one record.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	switch {
	case r.Level >= slog.LevelError:
		b.WriteString("error: ")
	case r.Level >= slog.LevelWarn:
		b.WriteString("warning: ")
	case r.Level < slog.LevelInfo:
		b.WriteString("debug: ")
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
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, addPrefix(b.String()))
	return err
}

// WithAttrs returns a handler that adds attributes to each record.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{mu: h.mu, w: h.w, level: h.level, attrs: append(append([]slog.Attr{}, h.attrs...), attrs...)}
}

// WithGroup ignores groups: a line for people has no nesting.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
