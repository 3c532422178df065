// Package lifetest runs the main lives of a sandbox with a provider and compares what they do with golden files, in
// testdata/lives of the provider's package. A golden file has the lines of the sandbox's journal and, before each line, the
// calls of the Engine that were made since the line before. What differs each time is left out or replaced: names, times,
// sizes, usage.
//
//	go test ./provider/docker -run Lives -args -update-lives
package lifetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aymanbagabas/go-udiff"

	"github.com/fumehood/fumehood/journal"
)

var update = flag.Bool("update-lives", false, "rewrite the golden files in testdata/lives")

// Record is the record of one life. Its methods may be called by multiple goroutines concurrently.
type Record struct {
	mu     sync.Mutex
	text   strings.Builder
	calls  map[string]int // since the last line or step
	shared bool           // the step also reads what it does not own
	names  *strings.Replacer
}

// New returns an empty record. The pairs are texts that differ each time, each with its replacement.
func New(pairs ...string) *Record {
	return &Record{calls: map[string]int{}, names: strings.NewReplacer(pairs...)}
}

// Call records a call of the Engine, such as "POST /containers/create".
func (r *Record) Call(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[call]++
}

// Step begins a step of the life.
func (r *Record) Step(name string) { r.step(name, false) }

// BeginShared begins a step that polls, or that reads the objects of other sandboxes too. How often it makes calls that only
// read is not recorded.
func (r *Record) BeginShared(name string) { r.step(name, true) }

func (r *Record) step(name string, shared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	r.shared = shared
	fmt.Fprintf(&r.text, "# %s\n", name)
}

// flush writes the calls since the last line, sorted, because some are concurrent. r.mu is held.
func (r *Record) flush() {
	calls := make([]string, 0, len(r.calls))
	for call := range r.calls {
		calls = append(calls, call)
	}
	slices.Sort(calls)
	for _, call := range calls {
		r.text.WriteString("    " + call)
		reads := strings.HasPrefix(call, "GET ") || strings.HasPrefix(call, "HEAD ")
		if n := r.calls[call]; n > 1 && (!r.shared || !reads) {
			fmt.Fprintf(&r.text, " x%d", n)
		}
		r.text.WriteByte('\n')
	}
	clear(r.calls)
}

// Journal returns a logger for Spec.Journal.
func (r *Record) Journal() *slog.Logger { return journal.New(r, nil).Logger }

// spans matches durations in messages.
var spans = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(ms|µs|s)\b`)

// Write records a line of a journal.
func (r *Record) Write(line []byte) (int, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	head := fmt.Sprint(fields["kind"])
	if name := cmp.Or(fields["phase"], fields["op"]); name != nil {
		head += fmt.Sprint(" ", name)
	}
	for _, field := range []string{"kind", "phase", "op", "time", "sandbox", "ms", "usage"} {
		delete(fields, field)
	}
	if subnets, ok := fields["subnets"].([]any); ok {
		fields["subnets"] = len(subnets)
	}
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	if err := e.Encode(fields); err != nil { // sorted by name
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	text := strings.TrimSpace(head + " " + strings.TrimPrefix(rest.String(), "{}"))
	fmt.Fprintln(&r.text, spans.ReplaceAllString(r.names.Replace(text), "SPAN"))
	return len(line), nil
}

// Check compares the record with the golden file of a name.
func (r *Record) Check(t testing.TB, name string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	got, file := r.text.String(), filepath.Join("testdata", "lives", name+".txt")
	if *update {
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(got), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := udiff.Unified(file, "this run", strings.ReplaceAll(string(want), "\r\n", "\n"), got); diff != "" {
		t.Errorf("if this change is intended, run the test with -args -update-lives:\n%s", diff)
	}
}
