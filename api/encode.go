package api

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
)

// maxWhole is the maximum size in bytes of an output that Encode encodes as a whole.
const maxWhole = 64 << 10

// Encode writes a value as JSON with a newline at its end, each level indented by indent. The fields of further values are
// added to those of the first; all must then be objects. Texts are not escaped for HTML. Large outputs of commands are
// written piece by piece: package encoding/json holds a value several times, and six bytes of text stand for each NUL that a
// program has printed.
func Encode(w io.Writer, indent string, values ...any) error {
	l := largeOutputs{mark: rand.Text()}
	for i, v := range values {
		if v != nil {
			stripped, _ := l.strip(reflect.ValueOf(v))
			values[i] = stripped.Interface()
		}
	}
	whole := values[0]
	if len(values) > 1 {
		joined, err := jsontext.Join(values...)
		if err != nil {
			return err
		}
		whole = json.RawMessage(joined)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(whole); err != nil {
		return err
	}
	return l.write(w, text.Bytes())
}

// largeOutputs are the outputs that are not encoded as a whole. A random mark and the index of an output stand for its text.
type largeOutputs struct {
	mark string
	all  []fumehood.Output
}

// strip returns v, or a copy with marks in the place of large outputs.
func (l *largeOutputs) strip(v reflect.Value) (_ reflect.Value, changed bool) {
	switch {
	case v.Type() == reflect.TypeFor[fumehood.Output]():
		o := v.Interface().(fumehood.Output) //nolint:forcetypeassert // it has this type
		if len(o.Bytes) <= maxWhole {
			return v, false
		}
		l.all = append(l.all, o)
		return reflect.ValueOf(fumehood.Output{Bytes: fmt.Appendf(nil, "%s%d", l.mark, len(l.all)-1)}), true
	case v.Kind() == reflect.Pointer && !v.IsNil():
		elem, changed := l.strip(v.Elem())
		if !changed {
			return v, false
		}
		p := reflect.New(elem.Type())
		p.Elem().Set(elem)
		return p, true
	case v.Kind() == reflect.Struct:
		stripped := v
		for i := range v.NumField() {
			if f := v.Type().Field(i); !f.IsExported() || f.Tag.Get("json") == "-" {
				continue
			}
			field, fieldChanged := l.strip(v.Field(i))
			if !fieldChanged {
				continue
			}
			if !changed {
				stripped, changed = reflect.New(v.Type()).Elem(), true
				stripped.Set(v)
			}
			stripped.Field(i).Set(field)
		}
		return stripped, changed
	}
	return v, false
}

// write writes JSON with each output in the place of its mark, in the form of fumehood.Output.MarshalJSON.
func (l *largeOutputs) write(w io.Writer, text []byte) error {
	if len(l.all) == 0 {
		_, err := w.Write(text)
		return err
	}
	to := bufio.NewWriterSize(w, maxWhole)
	marked := regexp.MustCompile(`(\s*)"text":( ?)"` + l.mark + `(\d+)",\s*"bytes": ?\d+,\s*"truncated": ?false`)
	end := 0
	for _, m := range marked.FindAllSubmatchIndex(text, -1) {
		_, _ = to.Write(text[end:m[0]]) // Flush returns the error of each write
		end = m[1]
		i, err := strconv.Atoi(string(text[m[6]:m[7]]))
		if err != nil {
			return err
		}
		key := func(name string) string { return fmt.Sprintf(`%s"%s":%s`, text[m[2]:m[3]], name, text[m[4]:m[5]]) }
		o := l.all[i]
		_, _ = to.WriteString(key("text") + `"`)
		_ = jsontext.WriteText(to, o.Whole())
		if !utf8.Valid(o.Bytes) {
			_, _ = to.WriteString(`",` + key("base64") + `"`)
			_ = jsontext.WriteBase64(to, o.Bytes)
		}
		_, _ = fmt.Fprintf(to, `",%s%d,%s%t`, key("bytes"), o.Total, key("truncated"), o.Truncated())
	}
	_, _ = to.Write(text[end:])
	return to.Flush()
}
