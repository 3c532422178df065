package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// TestReport_fields checks that the command line and the server describe a result by the same fields, whether or not there is
// one.
func TestReport_fields(t *testing.T) {
	t.Parallel()
	fields := func(text []byte) map[string]any {
		t.Helper()
		var all map[string]any
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	out := fumehood.Output{Bytes: []byte("\xff"), Total: 7}
	res := &fumehood.Result{
		Outcome: fumehood.OutOfMemory, ExitCode: 137, Signal: 9, Leaked: true, Reason: "r", Usage: fumehood.Usage{User: time.Second, OOMKills: 1},
		Stdout: out, Stderr: out, Duration: 1500 * time.Microsecond,
	}
	var with, without bytes.Buffer
	if err := errors.Join((&report{result: res}).write(&with, nil), (&report{}).write(&without, nil)); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	want, got := fields(text), fields(with.Bytes())
	want["start_ms"], want["error"] = 0.0, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the server has %v, and the command line %v", want, got)
	}
	for key, value := range fields(without.Bytes()) {
		if _, also := want[key]; !also || value != nil && value != 0.0 {
			t.Errorf("%s is %v without a result", key, value)
		}
	}
	var none map[string]any
	if none = fields([]byte(noSessionResult)); len(none) != reflect.TypeFor[api.SetupResult]().NumField() {
		t.Errorf("without a result, a session has %v", none)
	}
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
	var got struct {
		Stdout, Stderr struct {
			Text, Base64 string
			Bytes        int64
			Truncated    bool
		}
	}
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
