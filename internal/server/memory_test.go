package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/fake"
	"github.com/fumehood/fumehood/session/workspace"
	"github.com/fumehood/fumehood/test/tier"
)

// direct calls a server without connections.
type direct struct {
	*Server
	t         *testing.T
	lease     string
	last      int
	unreceive bool // keys are not acknowledged
	received  []string
}

func callDirectly(t *testing.T, opts Options) *direct {
	t.Helper()
	opts.Local, opts.sessions = true, t.TempDir()
	opts.Open = func(context.Context, func(provider.Progress)) (fumehood.Provider, error) {
		return fake.New(fake.Options{Programs: map[string]fake.Program{
			"true": func(context.Context, *fake.Proc) int { return 0 },
			"cat": func(_ context.Context, p *fake.Proc) int {
				_, _ = io.Copy(p.Stdout, p.Stdin)
				return 0
			},
		}}), nil
	}
	c := &direct{Server: New(t.Context(), opts), t: t}
	t.Cleanup(func() {
		if err := c.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	var opened api.Lease
	c.ok("POST", "/v1/leases", struct{}{}, &opened)
	l, _, err := c.hold(opened.ID)
	if err != nil {
		t.Fatal(err)
	}
	c.lease = l.id
	return c
}

// send sends a request, with a key if it is a POST, and acknowledges the keys before.
func (c *direct) send(method, path string, body any) *httptest.ResponseRecorder {
	c.t.Helper()
	text, isBytes := body.([]byte)
	if !isBytes && body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			c.t.Fatal(err)
		}
	}
	r := httptest.NewRequestWithContext(c.t.Context(), method, path, bytes.NewReader(text))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	if c.lease != "" {
		r.Header.Set("Fumehood-Lease", c.lease)
		r.Header.Set("Idempotency-Received", strings.Join(c.received, ","))
		c.received = nil
	}
	if c.lease != "" && method == http.MethodPost {
		c.last++
		key := fmt.Sprintf("%s-%d", c.lease, c.last)
		r.Header.Set("Idempotency-Key", key)
		if !c.unreceive {
			c.received = append(c.received, key)
		}
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w
}

// ok sends a request that must succeed, and decodes its answer.
func (c *direct) ok(method, path string, body, to any) {
	c.t.Helper()
	w := c.send(method, path, body)
	if w.Code >= 300 {
		c.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if to != nil {
		if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
			c.t.Fatal(err)
		}
	}
}

// fails sends a request that must fail, and returns the error.
func (c *direct) fails(method, path string) api.Error {
	c.t.Helper()
	w := c.send(method, path, nil)
	var got struct{ Error api.Error }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code < 300 {
		c.t.Fatalf("%s %s: %d %s, %v", method, path, w.Code, w.Body, err)
	}
	return got.Error
}

// used returns the bytes of the heap that are in use, and the number of goroutines.
func used() (heap, goroutines int) {
	for range 3 { // finalizers and cleanups free more
		goruntime.GC()
	}
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc), goruntime.NumGoroutine()
}

// The server keeps nothing of a closed sandbox but its keys.
func TestMemory_closed_sandboxes(t *testing.T) { //nolint:paralleltest // it measures the heap
	c := callDirectly(t, Options{})
	content := bytes.Repeat([]byte("x"), 8<<10)
	cycle := func(n int) {
		for range n {
			var box api.Sandbox
			c.ok("POST", "/v1/sandboxes", fumehood.Spec{}, &box)
			at := "/v1/sandboxes/" + box.ID
			c.ok("PUT", at+"/file?path=/work/file", content, nil)
			c.ok("POST", at+"/run", api.Cmd{Args: []api.Text{"cat"}, Stdin: content}, nil)
			var p api.Process
			c.ok("POST", at+"/processes", api.Cmd{Args: []api.Text{"cat"}, Stdin: content}, &p)
			c.ok("GET", at+"/processes/"+p.ID+"/result", nil, nil)
			c.ok("DELETE", at, nil, nil)
		}
	}
	cycle(100)
	heap, goroutines := used()
	n := tier.Pick(t, 500, 2000, 5000)
	cycle(n)
	more, running := used()
	const each = 4 << 10 // three keys, which are known for a minute
	if grown := more - heap; grown > n*each {
		t.Errorf("%d closed sandboxes take %d bytes, %d each", n, grown, grown/n)
	}
	if running > goroutines+20 {
		t.Errorf("%d goroutines became %d", goroutines, running)
	}
}

// A key that is never acknowledged keeps no others in memory.
func TestMemory_key_not_acknowledged(t *testing.T) { //nolint:paralleltest // it measures the heap
	c := callDirectly(t, Options{})
	var box api.Sandbox
	c.unreceive = true
	c.ok("POST", "/v1/sandboxes", fumehood.Spec{}, &box)
	c.unreceive = false
	for range 100 {
		c.ok("POST", "/v1/sandboxes/"+box.ID+"/run", api.Cmd{Args: []api.Text{"true"}}, nil)
	}
	l, release, err := c.hold(c.lease)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.held); n > 2 { // the first one, and the last one, which the next request acknowledges
		t.Errorf("%d answers are held", n)
	}
}

// keptElsewhere is a provider whose kept sandboxes other processes have removed.
type keptElsewhere struct {
	fumehood.Provider
	provider.Opener
}

func (keptElsewhere) Kept(context.Context, ...string) ([]provider.KeptSandbox, error) {
	return nil, nil
}

// The server forgets kept sandboxes that expired or that another process has removed.
func TestMemory_kept_removed_elsewhere(t *testing.T) {
	t.Parallel()
	c := callDirectly(t, Options{Permit: Permit{Kept: true}})
	open := c.opts.Open
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		p, err := open(ctx, report)
		return keptElsewhere{Provider: p}, err
	}
	for range 3 {
		c.ok("POST", "/v1/sandboxes", fumehood.Spec{Keep: true, TTL: time.Hour}, nil)
	}
	if n := len(c.kept); n != 1 {
		t.Errorf("%d kept sandboxes are in memory after the start of the last one", n)
	}
	c.ok("GET", "/v1/sandboxes", nil, nil)
	if n := len(c.kept); n != 0 {
		t.Errorf("%d kept sandboxes are in memory", n)
	}
}

// oneKept is a provider that has a kept sandbox.
type oneKept struct{ keptElsewhere }

func (oneKept) Kept(_ context.Context, names ...string) ([]provider.KeptSandbox, error) {
	if len(names) > 0 {
		return nil, nil
	}
	return make([]provider.KeptSandbox, 1), nil
}

// Kept sandboxes have the limit of the others.
func TestLimits_kept(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{1: 429, 2: 200} {
		c := callDirectly(t, Options{Permit: Permit{Kept: true}, Limits: Limits{Sandboxes: most}})
		open := c.opts.Open
		c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
			p, err := open(ctx, report)
			return oneKept{keptElsewhere{Provider: p}}, err
		}
		if got := c.send("POST", "/v1/sandboxes", fumehood.Spec{Keep: true, TTL: time.Hour}); got.Code != want {
			t.Errorf("--max-sandboxes %d: got %d %s, want %d", most, got.Code, got.Body, want)
		}
	}
}

// The arguments of started commands and the changes of checkpoints count as parts of the answers that are held.
func TestMemory_answers(t *testing.T) {
	t.Parallel()
	for _, answer := range []any{
		&api.Process{Args: []api.Text{api.Text(strings.Repeat("x", 1<<20))}},
		&api.Checkpoint{Changes: []workspace.Change{{Path: "a", Hunks: strings.Repeat("x", 1<<20)}}},
		&api.Checkpoint{Changes: make([]workspace.Change, 10_000)},
	} {
		if size := sizeOf(answer); size < 1<<20 || size > 8<<20 {
			t.Errorf("a %T is counted as %d bytes", answer, size)
		}
	}
}
