package journal

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// lines has one line of each kind, with all fields set.
func lines(t *testing.T) []Line {
	t.Helper()
	var all []Line
	now := time.Now().UTC().Round(0)
	for kind, line := range lineTypes {
		fill(reflect.ValueOf(line).Elem())
		*line.head() = Head{Time: now, Kind: kind, Sandbox: "box", Labels: map[string]string{"a": "b"}, Cut: true}
		all = append(all, line)
	}
	return all
}

// timeless returns a line without its time.
func timeless(line []byte) string {
	return regexp.MustCompile(`"time":"[^"]*"`).ReplaceAllString(string(line), `"time":""`)
}

// fill sets all zero fields.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[Head]() {
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"k": "v"}))
	case reflect.String:
		v.SetString("a <b> \u2028 \"text\"")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1234567.125)
	default:
		v.SetInt(1 << 40)
	}
}

func TestRead(t *testing.T) {
	all := lines(t)
	var text bytes.Buffer
	j := New(&text, nil)
	for _, line := range all {
		Log(j.Logger, line)
	}
	Log(j.Logger, &Other{Head: Head{Kind: "new", Sandbox: "box"}})
	text.WriteString("{broken\n")
	Log(j.Logger, all[0])
	n := 0
	for line, err := range Read(bytes.NewReader(text.Bytes())) {
		if line != nil {
			if age := time.Since(line.head().Time); age < 0 || age > time.Minute || line.head().Time.Location() != time.UTC {
				t.Errorf("the line's time is %v", line.head().Time)
			}
			line.head().Time = all[0].head().Time
		}
		switch {
		case n < len(all):
			if err != nil || !reflect.DeepEqual(line, all[n]) {
				t.Errorf("got  %+v, %v\nwant %+v", line, err, all[n])
			}
		case n == len(all):
			if other, ok := line.(*Other); err != nil || !ok || other.Kind != "new" || !json.Valid(other.Text) {
				t.Errorf("of another kind: %+v, %v", line, err)
			}
		case n == len(all)+1:
			if err == nil || !strings.Contains(err.Error(), "line 9 ") {
				t.Errorf("a broken line: %+v, %v", line, err)
			}
		case !reflect.DeepEqual(line, all[0]):
			t.Errorf("after a broken line: %+v, %v", line, err)
		}
		n++
	}
	if n != len(all)+3 || j.Err() != nil {
		t.Errorf("%d lines were read, %v", n, j.Err())
	}
}

func TestRead_endlessLine(t *testing.T) {
	n := 0
	for line, err := range Read(strings.NewReader(strings.Repeat("x", 10*MaxLine))) {
		if n++; line != nil || err == nil {
			t.Errorf("got %v, %v", line, err)
		}
	}
	if n != 1 {
		t.Errorf("%d lines", n)
	}
}

// A line is written as encoding/json encodes it, whatever slog does with its parts.
func TestLog_encoding(t *testing.T) {
	for _, line := range append(lines(t), &End{Head: Head{Time: time.Now().UTC().Round(0), Kind: "end", Sandbox: "box"}}) {
		var want, got bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(line); err != nil {
			t.Fatal(err)
		}
		Log(New(&got, nil).Logger, line)
		if timeless(got.Bytes()) != timeless(want.Bytes()) {
			t.Errorf("got  %swant %s", &got, &want)
		}
	}
}

func TestLog_textHandler(t *testing.T) {
	var text bytes.Buffer
	code := 3
	Log(slog.New(slog.NewTextHandler(&text, nil)), &End{Head: Head{Kind: "end", Sandbox: "box"}, ID: 1, Outcome: "exited", ExitCode: &code})
	if got := text.String(); !strings.Contains(got, "msg=end sandbox=box id=1") || !strings.Contains(got, "outcome=exited exit_code=3") {
		t.Errorf("got %s", got)
	}
}
