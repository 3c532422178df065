// Package journal writes and reads records of sandbox activity: phases, commands and how they ended, file
// operations, networks. Each record is one line with a JSON object; docs/journal.md describes them.
//
//	j := journal.New(file, logger)
//	spec.Journal = j.Logger
//
// Lines never contain values of variables, output or file contents. A sandbox reports each event as a log/slog
// record. The message is the line's kind, and the attributes are its fields, so any slog.Handler can receive them.
package journal

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"
)

// MaxLine is the maximum length of a line in bytes. Head.Cut marks lines that were shortened to fit.
const MaxLine = 64 << 10

// Journal writes the lines of one or more sandboxes, whose names are in the lines, in order of events. Its methods
// may be called by multiple goroutines concurrently.
type Journal struct {
	// Logger is for fumehood.Spec.Journal.
	*slog.Logger
	out *output
}

// New returns a journal that writes to w, which the caller closes. Each line is one Write, and the recorded
// operation waits for it. A failed write fails nothing else. The first failure is logged to logger, which may be
// nil. When writing works again, a line of the kind "lost" reports how many lines are missing.
func New(w io.Writer, logger *slog.Logger) *Journal {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	out := &output{w: w, log: logger}
	return &Journal{slog.New(newHandler(out)), out}
}

// Err returns the first error in writing a line, or nil.
func (j *Journal) Err() error {
	j.out.mu.Lock()
	defer j.out.mu.Unlock()
	return j.out.err
}

// newHandler returns a handler that writes records as lines.
func newHandler(w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case len(groups) > 0:
		case a.Key == slog.LevelKey && a.Value.Kind() == slog.KindAny: // a slog.Level, which is not a field
			return slog.Attr{}
		case a.Key == slog.MessageKey:
			a.Key = "kind"
		case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime:
			a.Value = slog.TimeValue(a.Value.Time().UTC())
		}
		return a
	}})
}

// Log logs a line with its Kind. It uses the current time and ignores the line's Time.
func Log(to *slog.Logger, line Line) {
	to.Info(line.head().Kind, fields(reflect.ValueOf(line).Elem())...)
}

// fields returns the fields of a line, except those that a slog record has itself.
func fields(line reflect.Value) (all []any) {
	for i := range line.NumField() {
		f, v := line.Type().Field(i), line.Field(i)
		if f.Anonymous {
			all = append(all, fields(v)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Type == reflect.TypeFor[time.Time]() || name == "kind" || name == "-" || options == "omitempty" && isEmpty(v) {
			continue
		}
		all = append(all, slog.Any(name, reflect.Indirect(v).Interface()))
	}
	return all
}

// isEmpty reports whether encoding/json omits the value with omitempty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// output writes each line with one Write. It never returns an error.
type output struct {
	log *slog.Logger

	mu   sync.Mutex
	w    io.Writer
	torn bool  // the last line was written partially
	lost int64 // number of lines lost since the last success
	err  error // the first error
}

// Write writes a line, preceded by a line with the number of lost lines if there are any.
func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	if o.lost > 0 {
		gap, _ := json.Marshal(Lost{Head{Time: time.Now().UTC().Round(0), Kind: "lost"}, o.lost}) // it cannot fail
		if err = o.write(append(gap, '\n')); err == nil {
			o.lost = 0
		}
	}
	if err == nil {
		err = o.write(line)
	}
	if err == nil {
		return len(line), nil
	}
	o.lost++
	if o.err == nil {
		o.err = err
		o.log.Warn("the journal cannot be written: lines are missing", "error", err)
	}
	return len(line), nil
}

// write writes a line. If the previous line is incomplete, it first terminates that line. o.mu is held.
func (o *output) write(line []byte) error {
	text := line
	if o.torn {
		text = append([]byte{'\n'}, line...)
	}
	n, err := o.w.Write(bytes.Clone(text)) // the handler reuses its buffer
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	switch {
	case err == nil, o.torn && n == 1:
		o.torn = false
	case n > 0:
		o.torn = true
	}
	return err
}
