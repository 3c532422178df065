package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/session"
)

// TestJSON_types checks that the command line and the server describe results by the same keys and values.
func TestJSON_types(t *testing.T) {
	t.Parallel()
	out := func(text string) fumehood.Output { return fumehood.Output{Bytes: []byte(text), Total: 7} }
	usage := fumehood.Usage{User: time.Second, OOMKills: 1}
	keys := func(v any, outputs ...*outputJSON) map[string]json.RawMessage {
		t.Helper()
		var text bytes.Buffer
		m := map[string]json.RawMessage{}
		if err := errors.Join(writeJSON(&text, v, outputs...), json.Unmarshal(text.Bytes(), &m)); err != nil {
			t.Fatal(err)
		}
		for key, value := range m {
			var compact bytes.Buffer
			if err := json.Compact(&compact, value); err != nil {
				t.Fatal(err)
			}
			m[key] = compact.Bytes()
		}
		return m
	}
	same := func(server, own map[string]json.RawMessage, more ...string) {
		t.Helper()
		for _, key := range more {
			delete(own, key)
			delete(server, key)
		}
		if !maps.EqualFunc(server, own, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			t.Errorf("the server has %s, and the command line %s", server, own)
		}
	}
	res := &fumehood.Result{
		Outcome: fumehood.OutOfMemory, ExitCode: 137, Signal: 9, Leaked: true, Reason: "r", Usage: usage, Stdout: out("out"), Stderr: out("\xff"),
		Duration: 1500 * time.Microsecond,
	}
	var text bytes.Buffer
	if err := (&report{result: res}).write(&text, nil); err != nil {
		t.Fatal(err)
	}
	own := map[string]json.RawMessage{}
	if err := json.Unmarshal(text.Bytes(), &own); err != nil {
		t.Fatal(err)
	}
	same(keys(res), keys(own), "start_ms", "started", "error")
	in := &session.Result{
		Outcome: fumehood.Signaled, ExitCode: 137, Signal: 9, Leaked: true, Reason: "r", Usage: usage, SetupEnded: true, Elapsed: time.Second,
		Stdout: out("a"), Stderr: out("b"), SetupStdout: out("c"), SetupStderr: out("\xff"),
	}
	var obj sessionJSON
	obj.fill(in)
	same(keys(api.SessionResultOf(in)), keys(obj, obj.SetupStdout, obj.SetupStderr, obj.Stdout, obj.Stderr), "error")
}

// FuzzWriteText compares writeText with package json.
func FuzzWriteText(f *testing.F) {
	for _, text := range []string{
		"", "plain", "a\"b\\c\x00\x1b\b\f\n\r\t\x7f", "\xff\xfe\xe2\x80", "\u2028\u2029\ufffd<&>", "ü€😀", "\xed\xa0\x80x",
		strings.Repeat("a", textPart-1) + "ü\xff\xff\xfe\xffb", strings.Repeat("\xff", 2*textPart) + "b", strings.Repeat("ü", 2*textPart) + "\xff",
	} {
		f.Add([]byte(text), int64(0))
		f.Add([]byte(text), int64(1000))
	}
	f.Fuzz(func(t *testing.T, content []byte, dropped int64) {
		o := fumehood.Output{Bytes: content, Total: int64(len(content)) + max(dropped, 0)}
		var want, got bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(o.Text()); err != nil {
			t.Fatal(err)
		}
		if err := writeText(&got, o.Whole()); err != nil || `"`+got.String()+"\"\n" != want.String() {
			t.Errorf("got %s, %v, not %s", got.String(), err, want.String())
		}
	})
}

// TestWriteText_parts checks that text is encoded in parts, and that no part ends within a character.
func TestWriteText_parts(t *testing.T) {
	t.Parallel()
	for _, character := range []string{"a", "ü", "€", "😀", "\xff", "€\xe2\x82"} {
		for shift := range utf8.UTFMax {
			content := []byte(strings.Repeat("a", shift) + strings.Repeat(character, 3*textPart))
			var got parts
			if err := writeText(&got, content); err != nil {
				t.Fatal(err)
			}
			if want := strings.ToValidUTF8(string(content), "\ufffd"); got.text.String() != want {
				t.Errorf("%q after %d bytes: wrong text of %d bytes, want %d", character, shift, got.text.Len(), len(want))
			}
			// Each invalid byte becomes a U+FFFD of three bytes.
			if got.longest > 3*textPart {
				t.Errorf("%q after %d bytes: a part of %d bytes", character, shift, got.longest)
			}
		}
	}
}

// parts records the written text and the length of the longest write.
type parts struct {
	text    strings.Builder
	longest int
}

func (p *parts) Write(b []byte) (int, error) {
	p.longest = max(p.longest, len(b))
	return p.text.Write(b)
}

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	r := &report{result: &fumehood.Result{
		Outcome: fumehood.Exited, Stdout: fumehood.Output{Bytes: []byte("a\xffb"), Total: 5}, Stderr: fumehood.Output{Bytes: []byte("é\n"), Total: 3},
	}}
	var b strings.Builder
	if err := r.write(&b, nil); err != nil {
		t.Fatal(err)
	}
	var got struct{ Stdout, Stderr outputJSON }
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatalf("%v: %s", err, b.String())
	}
	if got.Stdout.Text != "a\ufffdb" || got.Stdout.Base64 != "Yf9i" || got.Stdout.Bytes != 5 || !got.Stdout.Truncated || got.Stderr.Text != "é\n" || got.Stderr.Base64 != "" || got.Stderr.Truncated {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(b.String(), "\n  \"stdout\": {\n    \"text\": \"a\ufffdb\",\n") {
		t.Errorf("got %s", b.String())
	}
	if err := r.write(failing{}, nil); !errors.Is(err, errFailing) {
		t.Errorf("got %v", err)
	}
	b.Reset()
	if err := (&report{}).write(&b, errFailing); err != nil || !strings.Contains(b.String(), `"stdout": null`) {
		t.Errorf("got %s, %v", b.String(), err)
	}
}

var errFailing = errors.New("no space")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFailing }
