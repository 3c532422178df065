package server

import (
	"bytes"
	"encoding/json"
	"reflect"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// What encode writes has the values that package encoding/json writes.
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
		s := &api.SessionResult{Stdout: out[0], SetupStdout: out[1], SetupStderr: out[0], Reason: r.Reason}
		for _, v := range []any{r, s, &api.Event{Type: api.EventEnd, Result: r}, api.SessionEvent{Type: api.EventEnd, Result: s}} {
			var got, want bytes.Buffer
			if err := encode(&got, v); err != nil {
				t.Fatal(err)
			}
			if err := newEncoder(&want).Encode(v); err != nil {
				t.Fatal(err)
			}
			var a, b any
			if err := json.Unmarshal(got.Bytes(), &a); err != nil || json.Unmarshal(want.Bytes(), &b) != nil || !reflect.DeepEqual(a, b) || !bytes.HasSuffix(got.Bytes(), []byte("}\n")) {
				t.Errorf("%s, %T: %v, got %.300q, want %.300q", name, v, err, &got, &want)
			}
		}
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
	if err := encode(w, r); err != nil {
		t.Fatal(err)
	}
	if most > 32<<20 {
		t.Errorf("10 MiB of NULs took %d MiB", most>>20)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
