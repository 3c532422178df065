package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/jsontext"
)

// encode writes a value as a line of JSON. Large outputs of commands are written piece by piece: package encoding/json holds a
// value several times, and six bytes of text stand for each NUL that a program has printed.
func encode(w io.Writer, v any) error {
	rest, outputs := withoutOutputs(v)
	size := int64(0)
	for _, o := range outputs {
		size += int64(len(o.Bytes))
	}
	if size <= smallBody {
		return newEncoder(w).Encode(v)
	}
	var buffer bytes.Buffer
	if err := newEncoder(&buffer).Encode(rest); err != nil {
		return err
	}
	none, err := json.Marshal(fumehood.Output{})
	if err != nil {
		return err
	}
	to := bufio.NewWriterSize(w, smallBody)
	around := buffer.Bytes()
	for _, o := range outputs {
		before, after, _ := bytes.Cut(around, none)
		_, _ = to.Write(before) // Flush has the error
		writeOutput(to, o)
		around = after
	}
	_, _ = to.Write(around)
	return to.Flush()
}

func newEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// withoutOutputs returns a value with empty outputs, and its outputs in the order of its JSON. There are none if it has no result
// of a command.
func withoutOutputs(v any) (rest any, outputs []fumehood.Output) {
	switch v := v.(type) {
	case *fumehood.Result:
		r := *v
		r.Stdout, r.Stderr = fumehood.Output{}, fumehood.Output{}
		return &r, []fumehood.Output{v.Stdout, v.Stderr}
	case *api.SessionResult:
		r := *v
		r.Stdout, r.Stderr, r.SetupStdout, r.SetupStderr = fumehood.Output{}, fumehood.Output{}, fumehood.Output{}, fumehood.Output{}
		return &r, []fumehood.Output{v.Stdout, v.Stderr, v.SetupStdout, v.SetupStderr}
	case *api.Event:
		if v.Result != nil {
			r, outputs := withoutOutputs(v.Result)
			ev := *v
			ev.Result = r.(*fumehood.Result)
			return &ev, outputs
		}
	case api.SessionEvent:
		if v.Result != nil {
			r, outputs := withoutOutputs(v.Result)
			v.Result = r.(*api.SessionResult)
			return v, outputs
		}
	}
	return v, nil
}

// writeOutput writes an output as fumehood.Output.MarshalJSON does. The caller's Flush has the errors.
func writeOutput(w *bufio.Writer, o fumehood.Output) {
	_, _ = w.WriteString(`{"text":"`)
	_ = jsontext.WriteText(w, o.Whole())
	_ = w.WriteByte('"')
	if !utf8.Valid(o.Bytes) {
		_, _ = w.WriteString(`,"base64":"`)
		_ = jsontext.WriteBase64(w, o.Bytes)
		_ = w.WriteByte('"')
	}
	_, _ = fmt.Fprintf(w, `,"bytes":%d,"truncated":%t}`, o.Total, o.Truncated())
}
