package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

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
