// Package journal writes and reads records of what is done in sandboxes: phases, commands with how they ended, file operations,
// networks. Each is a line, a JSON object; docs/journal.md describes them.
//
//	j := journal.New(file, logger)
//	spec.Journal = j.Logger
//
// Values of variables are in no line, outputs and contents of files neither. What a sandbox reports is a record of log/slog, whose
// message is the line's kind and whose attributes are its fields: any slog.Handler can take them.
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

// MaxLine is the most bytes that one line has. What is left out for that is said by Head.Cut.
const MaxLine = 64 << 10

// Journal writes the lines of sandboxes, in the order in which things were done. Its methods may be called by many goroutines at
// once, and it may be that of many sandboxes, which its lines name.
type Journal struct {
	// Logger is for fumehood.Spec.Journal.
	*slog.Logger
	out *output
}

// New makes a journal that writes to w, which stays the caller's to close. Each line is one Write, and what is done waits for it. A
// write that fails fails nothing else: logger, which may be nil, is told of the first one, and where lines can be written again,
// one of the kind "lost" says how many are missing.
func New(w io.Writer, logger *slog.Logger) *Journal {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	out := &output{w: w, log: logger}
	return &Journal{slog.New(newHandler(out)), out}
}

// Err is the first failure to write a line; nil where there was none.
func (j *Journal) Err() error {
	j.out.mu.Lock()
	defer j.out.mu.Unlock()
	return j.out.err
}

// newHandler writes records as lines.
func newHandler(w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case len(groups) > 0:
		case a.Key == slog.LevelKey && a.Value.Kind() == slog.KindAny: // a slog.Level, which no field is
			return slog.Attr{}
		case a.Key == slog.MessageKey:
			a.Key = "kind"
		case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime:
			a.Value = slog.TimeValue(a.Value.Time().UTC())
		}
		return a
	}})
}

// Log logs a line, which has its Kind. Its time is now, whatever its Time.
func Log(to *slog.Logger, line Line) {
	to.Info(line.head().Kind, fields(reflect.ValueOf(line).Elem())...)
}

// fields are those of a line, but for what a record of slog has itself.
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

// isEmpty is what encoding/json leaves out by omitempty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// output is what lines are written to, each by one Write. It fails none of them.
type output struct {
	log *slog.Logger

	mu   sync.Mutex
	w    io.Writer
	torn bool  // the last line that was written is not whole
	lost int64 // lines since one could last be written
	err  error // the first failure
}

// Write writes a line, and before it how many were lost.
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
		o.log.Warn("the journal cannot be written: lines of it are missing", "error", err)
	}
	return len(line), nil
}

// write writes a line, and first ends the one before where that has no end; o.mu is held.
func (o *output) write(line []byte) error {
	text := line
	if o.torn {
		text = append([]byte{'\n'}, line...)
	}
	n, err := o.w.Write(bytes.Clone(text)) // the handler uses its buffer again
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
