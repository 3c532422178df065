package api_test

import (
	"bytes"
	"encoding/json"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// TestEncode checks that Encode writes what package encoding/json writes.
func TestEncode(t *testing.T) {
	output := func(text string, more int64) fumehood.Output {
		return fumehood.Output{Bytes: []byte(text), Total: int64(len(text)) + more}
	}
	large := strings.Repeat("\x00<é\U0001F600\"\\\u2028", 20_000)
	for name, out := range map[string][2]fumehood.Output{
		"text":             {output(large, 0), output("", 0)},
		"only the second":  {output("", 0), output(large, 0)},
		"cut":              {output("\xa9"+large, 5), output("x", 0)},
		"cut, all dropped": {output(large, 0), output("", 9)},
		"not UTF-8":        {output(large+"\xff\xfe\x80"+large, 0), output(strings.Repeat("\xff", 70_000)+"x\xff", 0)},
		"the empty output": {output(strings.Repeat(`"stdout":{"text":"","bytes":0,"truncated":false}`, 4000), 0), output(large, 0)},
		"small":            {output("a", 0), output("\xff", 0)},
	} {
		r := &fumehood.Result{Outcome: fumehood.Exited, Stdout: out[0], Stderr: out[1], Reason: `{"text":"","bytes":0,"truncated":false}`}
		s := &api.SessionResult{
			Result:      fumehood.Result{Stdout: out[0], Reason: r.Reason},
			SetupResult: api.SetupResult{SetupStdout: out[1], SetupStderr: out[0]},
		}
		for _, v := range []any{r, s, &api.Event{Type: api.EventEnd, Result: r}, api.SessionEvent{Type: api.EventEnd, Result: s}} {
			for _, indent := range []string{"", "  "} {
				var got, want bytes.Buffer
				if err := api.Encode(&got, indent, v); err != nil {
					t.Fatal(err)
				}
				e := json.NewEncoder(&want)
				e.SetEscapeHTML(false)
				e.SetIndent("", indent)
				if err := e.Encode(v); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), want.Bytes()) {
					t.Errorf("%s, %T: got %.300q, want %.300q", name, v, &got, &want)
				}
			}
		}
		if len(r.Stdout.Bytes) != len(out[0].Bytes) || len(s.SetupStdout.Bytes) != len(out[1].Bytes) {
			t.Errorf("%s: the value has changed", name)
		}
	}
}

// TestEncode_fields checks that the fields of several values are in one object.
func TestEncode_fields(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	a, b := struct{ A string }{"<a>"}, struct{ B fumehood.Output }{fumehood.Output{Bytes: bytes.Repeat([]byte("b"), 70_000), Total: 70_000}}
	if err := api.Encode(&got, "", a, json.RawMessage("{}"), &b, json.RawMessage(`{"c":null}`)); err != nil {
		t.Fatal(err)
	}
	if want := `{"A":"<a>","B":{"text":"` + strings.Repeat("b", 70_000) + `","bytes":70000,"truncated":false},"c":null}` + "\n"; got.String() != want {
		t.Errorf("got %.100s", &got)
	}
	if err := api.Encode(&got, "", a, 1); err == nil {
		t.Error("a number was joined to an object")
	}
}

func TestEncode_memory(t *testing.T) { //nolint:paralleltest // it measures what is allocated
	r := &fumehood.Result{Stdout: fumehood.Output{Bytes: make([]byte, 10<<20), Total: 10 << 20}}
	held := func() int64 {
		var now goruntime.MemStats
		goruntime.GC()
		goruntime.ReadMemStats(&now)
		return int64(now.HeapAlloc) //nolint:gosec // it fits
	}
	before, most, writes := held(), int64(0), 0
	w := writer(func(p []byte) (int, error) {
		if writes++; writes%100 == 1 || len(p) > 1<<20 {
			most = max(most, held()-before)
		}
		return len(p), nil
	})
	if err := api.Encode(w, "", r); err != nil {
		t.Fatal(err)
	}
	if most > 32<<20 {
		t.Errorf("10 MiB of NULs took %d MiB", most>>20)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
