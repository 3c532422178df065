package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session"
)

// counting returns a command that counts its runs in a file of the host, and the number of runs.
func counting(t *testing.T, script string) (cmd api.Cmd, runs func() int) {
	file := filepath.Join(t.TempDir(), "runs")
	return sh("echo run >>" + file + "; " + script), func() int {
		text, _ := os.ReadFile(file)
		return bytes.Count(text, []byte("\n"))
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	cmd, runs := counting(t, "sleep 0.5; date +%N")
	key := []string{"Idempotency-Key", c.lease + "-a"}
	var outputs sync.Map
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			var res fumehood.Result
			c.ok("POST", box+"/run", cmd, &res, key...)
			outputs.Store(res.Stdout.Text(), true)
		})
	}
	all.Wait()
	var res fumehood.Result
	c.ok("POST", box+"/run", cmd, &res, key...) // afterwards
	outputs.Store(res.Stdout.Text(), true)
	n := 0
	outputs.Range(func(any, any) bool { n++; return true })
	if n != 1 || runs() != 1 {
		t.Errorf("%d runs with %d outputs", runs(), n)
	}
	c.fails(422, fumehood.CodeConfig, "POST", box+"/run", sh("true"), key...)
	c.fails(410, api.CodeStale, "POST", box+"/run", sh("true"), "Idempotency-Key", "sother-0123-a")
	c.fails(400, fumehood.CodeConfig, "POST", box+"/run", sh("true"), "Idempotency-Key", c.lease+"-a b")
	c.ok("GET", box, nil, nil, "Idempotency-Received", c.lease+"-a,"+c.lease+"-unknown")
	c.fails(410, api.CodeStale, "POST", box+"/run", cmd, key...)
	// An error is an answer too.
	missing := api.Cmd{Args: []api.Text{"no-such-program"}}
	for range 2 {
		c.fails(422, fumehood.CodeProgramNotFound, "POST", box+"/run", missing, "Idempotency-Key", c.lease+"-b")
	}
	// The same sandbox.
	var first, second api.Sandbox
	for _, to := range []*api.Sandbox{&first, &second} {
		c.ok("POST", "/v1/sandboxes", fumehood.Spec{}, to, "Idempotency-Key", c.lease+"-c")
	}
	if first.ID != second.ID || len(c.left()) != 2 {
		t.Errorf("got %s and %s", first.ID, second.ID)
	}
	if runs() != 1 {
		t.Errorf("%d runs", runs())
	}
}

// A client that lost its connection gets the result by its key.
func TestOnce_brokenConnection(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	cmd, runs := counting(t, "sleep 0.5; echo done")
	ctx, cancel := context.WithCancel(t.Context())
	text, err := json.Marshal(cmd)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost"+box+"/run", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Fumehood-Lease": {c.lease}, "Idempotency-Key": {c.lease + "-a"}, "Content-Type": {"application/json"}}
	go func() {
		eventually(t, "it runs", func() bool { return runs() == 1 })
		cancel()
	}()
	if resp, err := c.http.Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("the request was not broken")
	}
	var res fumehood.Result
	c.ok("POST", box+"/run", cmd, &res, "Idempotency-Key", c.lease+"-a")
	if res.Stdout.Text() != "done\n" || runs() != 1 {
		t.Errorf("%d runs: %+v", runs(), res)
	}
	// Without a key, a command is killed with its connection.
	slow, runs := counting(t, "sleep 600")
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	text, _ = json.Marshal(slow)
	req, _ = http.NewRequestWithContext(ctx, "POST", "http://localhost"+box+"/run", bytes.NewReader(text))
	req.Header = http.Header{"Fumehood-Lease": {c.lease}, "Content-Type": {"application/json"}}
	if resp, err := c.http.Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("the request was not broken")
	}
	eventually(t, "no command runs", func() bool { return c.commands.Load() == 0 })
	if runs() > 1 {
		t.Errorf("%d runs", runs())
	}
}

func TestCancelKey(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	cmd, runs := counting(t, "sleep 600")
	key := c.lease + "-a"
	go c.fails(409, fumehood.CodeCanceled, "POST", box+"/run", cmd, "Idempotency-Key", key)
	eventually(t, "it runs", func() bool { return runs() == 1 })
	c.ok("DELETE", "/v1/leases/"+c.lease+"/keys/"+key, nil, nil)
	eventually(t, "no command runs", func() bool { return c.commands.Load() == 0 })
	c.ok("DELETE", "/v1/leases/"+c.lease+"/keys/"+key, nil, nil)
	// A request that arrives after its cancellation does not run.
	late, runs := counting(t, "true")
	c.ok("DELETE", "/v1/leases/"+c.lease+"/keys/"+c.lease+"-b", nil, nil)
	c.fails(409, fumehood.CodeCanceled, "POST", box+"/run", late, "Idempotency-Key", c.lease+"-b")
	if runs() != 0 {
		t.Error("it ran")
	}
	// What has started already is taken back.
	c.ok("POST", "/v1/sandboxes", fumehood.Spec{}, nil, "Idempotency-Key", c.lease+"-c")
	var p api.Process
	c.ok("POST", box+"/processes", sh("sleep 600"), &p, "Idempotency-Key", c.lease+"-d")
	for _, key := range []string{"c", "d"} {
		c.ok("DELETE", "/v1/leases/"+c.lease+"/keys/"+c.lease+"-"+key, nil, nil)
	}
	var res fumehood.Result
	c.ok("GET", box+"/processes/"+p.ID+"/result", nil, &res)
	if res.Outcome != fumehood.Signaled || len(c.left()) != 1 {
		t.Errorf("%+v; left: %q", res, c.left())
	}
	c.fails(409, fumehood.CodeCanceled, "POST", "/v1/sandboxes", fumehood.Spec{}, "Idempotency-Key", c.lease+"-c")
}

// Beyond a number of bytes that all leases hold, a large answer is not held. Its request gets it all the same.
func TestOnce_answersOfAll(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{answers: 1 << 20})
	big, runs := counting(t, "head -c 800000 /dev/zero | tr '\\0' x")
	run := func() {
		t.Helper()
		var res fumehood.Result
		c.ok("POST", c.box()+"/run", big, &res, "Idempotency-Key", c.lease+"-a")
		if len(res.Stdout.Bytes) != 800_000 {
			t.Errorf("the answer has %d bytes", len(res.Stdout.Bytes))
		}
	}
	run()
	first := c.lease
	var other api.Lease
	c.ok("POST", "/v1/leases", struct{}{}, &other)
	c.lease = other.ID
	c.hold(t.Context())
	run()
	if held := c.held.Load(); held > 1<<20 || held < 800_000 {
		t.Errorf("%d bytes are held", held)
	}
	box := c.box()
	c.fails(422, fumehood.CodeConfig, "POST", box+"/run", big, "Idempotency-Key", c.lease+"-a") // the key is known
	c.ok("DELETE", "/v1/leases/"+first, nil, nil)
	if held := c.held.Load(); held >= 800_000 {
		t.Errorf("an ended lease holds %d bytes", held)
	}
	for range 2 { // there is room again
		c.ok("POST", box+"/run", big, nil, "Idempotency-Key", c.lease+"-b")
	}
	if runs() != 3 {
		t.Errorf("%d runs", runs())
	}
}

// Answers are held up to a number of bytes. A repeat of one that was dropped is an error, and does not run again.
func TestOnce_dropped(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{held: 1 << 20})
	box := c.box()
	big, runs := counting(t, "head -c 400000 /dev/zero | tr '\\0' x")
	for i := range 3 {
		c.ok("POST", box+"/run", big, nil, "Idempotency-Key", fmt.Sprintf("%s-%d", c.lease, i))
	}
	c.fails(410, api.CodeStale, "POST", box+"/run", big, "Idempotency-Key", c.lease+"-0")
	c.ok("POST", box+"/run", big, nil, "Idempotency-Key", c.lease+"-2")
	if runs() != 3 {
		t.Errorf("%d runs", runs())
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	const short = 1500 * time.Millisecond
	c := serve(t, Options{grace: short})
	held := c.lease
	var opened api.Lease
	c.ok("POST", "/v1/leases", struct{}{}, &opened)
	c.lease = opened.ID
	ctx, cancel := context.WithCancel(t.Context())
	c.hold(ctx)
	box := c.box()
	cmd, runs := counting(t, "sleep 600")
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.fails(409, fumehood.CodeCanceled, "POST", box+"/run", cmd, "Idempotency-Key", c.lease+"-a")
	}()
	eventually(t, "it runs", func() bool { return runs() == 1 })
	c.ok("DELETE", "/v1/leases/"+c.lease, nil, nil)
	<-done
	if left := c.left(); len(left) != 0 || c.commands.Load() != 0 {
		t.Errorf("left: %q", left)
	}
	c.fails(410, api.CodeStale, "GET", box, nil)
	cancel()

	// It ends some time after its connection, and not if that comes back before.
	c.ok("POST", "/v1/leases", struct{}{}, &opened)
	c.lease = opened.ID
	ctx, cancel = context.WithCancel(t.Context())
	c.hold(ctx)
	c.box()
	cancel()
	<-time.After(short / 5)
	ctx, cancel = context.WithCancel(t.Context())
	c.hold(ctx)
	<-time.After(2 * short)
	if len(c.left()) != 1 {
		t.Error("the sandbox was removed while the lease is held")
	}
	cancel()
	eventually(t, "the sandbox is removed", func() bool { return len(c.left()) == 0 })
	c.fails(410, api.CodeStale, "GET", "/v1/sandboxes", nil)

	// Heartbeats hold it too.
	c.ok("POST", "/v1/leases", struct{}{}, &opened)
	c.lease = opened.ID
	box = c.box()
	for range 10 {
		<-time.After(short / 4)
		c.ok("POST", "/v1/leases/"+c.lease+"/renew", nil, nil)
	}
	c.ok("GET", box, nil, nil)
	eventually(t, "the sandbox is removed", func() bool { return len(c.left()) == 0 })

	for id, status := range map[string]int{"": 400, "sother-0123": 410, held + "x": 410, strings.Repeat("x", 200): 410} {
		got, _ := c.answer("GET", "/v1/sandboxes", nil, "Fumehood-Lease", id)
		if got != status {
			t.Errorf("lease %q: got %d, want %d", id, got, status)
		}
	}
	c.lease = held
	c.ok("GET", "/v1/sandboxes", nil, nil)
}

// A lease that nobody has held ends too. Nothing but its timer reaches it then, also for the race detector.
func TestLease_unused(t *testing.T) {
	t.Parallel()
	s := New(t.Context(), Options{grace: time.Millisecond})
	for range 20 {
		if _, err := s.newLease(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all leases have ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.leases) == 0
	})
}

// A lease whose time is over when it is held again does not end.
func TestLease_heldAgain(t *testing.T) {
	t.Parallel()
	s := New(t.Context(), Options{})
	l, err := s.newLease()
	if err != nil {
		t.Fatal(err)
	}
	_, release, err := s.hold(l.id)
	if err != nil {
		t.Fatal(err)
	}
	l.expire() // as the timer that fires just before
	if _, again, err := s.hold(l.id); err != nil {
		t.Error(err)
	} else {
		again()
	}
	release()
	l.expire()
	if _, _, err := s.hold(l.id); err == nil {
		t.Error("the lease has not ended")
	}
}

// Sessions and evaluations count from the time when their start begins, and until they have ended.
func TestLease_limit(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"env.yaml": "type: local\n", "task.yaml": "{name: slow, environment: {file: env.yaml}, samples: [{id: a, command: sleep 600}]}\n"})
	c := serve(t, Options{Limits: Limits{Sandboxes: 1}, Permit: Permit{HostPaths: []string{dir}}})
	open, opening, proceed := c.opts.Open, make(chan struct{}), make(chan struct{})
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		close(opening)
		<-proceed
		return open(ctx, report)
	}
	var path string
	var first sync.WaitGroup
	first.Go(func() { path = c.open(api.SessionOptions{Workspace: dir}) })
	<-opening
	another := fmt.Sprintf(`{"kind":"agent","environment":"type: local","workspace":%q}`, dir)
	head := "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nFumehood-Lease: "
	if got := c.raw(fmt.Sprintf("%s%s\r\nContent-Length: %d\r\n\r\n%s", head, c.lease, len(another), another)); !strings.HasPrefix(got, "HTTP/1.1 429 ") {
		t.Errorf("a second session: got %q", got)
	}
	evaluation := api.EvaluationOptions{Task: dir, Runs: filepath.Join(dir, "runs")}
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/evaluations", evaluation)
	close(proceed)
	first.Wait()
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/evaluations", evaluation)
	c.ok("DELETE", path, nil, nil)
	c.fails(403, fumehood.CodePermission, "POST", "/v1/sessions", api.SessionOptions{Kind: session.Agent, Environment: "type: local", Workspace: "/"})
	var e api.Evaluation
	c.ok("POST", "/v1/evaluations", evaluation, &e)
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/sessions", api.SessionOptions{Kind: session.Agent, Environment: "type: local", Workspace: dir})
	c.ok("DELETE", "/v1/evaluations/"+e.ID, nil, nil)
	c.open(api.SessionOptions{Workspace: dir})
}

// The server's end ends all leases: serve checks that nothing is left.
func TestServe_stops(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	cmd, runs := counting(t, "sleep 600")
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.fails(409, fumehood.CodeCanceled, "POST", box+"/run", cmd)
	}()
	eventually(t, "it runs", func() bool { return runs() == 1 })
	c.stop()
	<-done
	if _, err := os.Stat(c.path); err == nil {
		t.Error("the socket is still there")
	}
}

// closing is a provider that reports its end.
type closing struct {
	fumehood.Provider
	closed func()
}

func (p closing) Close(ctx context.Context) error {
	p.closed()
	return p.Provider.Close(ctx)
}

// slow is a provider whose sandboxes are removed slowly.
type slow struct {
	fumehood.Provider
	removed *atomic.Bool
}

func (p slow) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	sb, err := p.Provider.Start(ctx, spec)
	return &leasedSandbox{sb, func(ctx context.Context) error {
		<-time.After(300 * time.Millisecond)
		defer p.removed.Store(true)
		return sb.Close(ctx)
	}}, err
}

// The server closes its provider when the last sandbox is removed, also one whose lease had ended before.
func TestServe_endingLease(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	open, removed, closed := c.opts.Open, new(atomic.Bool), new(atomic.Bool)
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		p, err := open(ctx, report)
		return closing{slow{p, removed}, func() {
			if closed.Store(true); !removed.Load() {
				t.Error("the provider was closed before the sandbox was removed")
			}
		}}, err
	}
	c.box()
	c.mu.Lock()
	l := c.leases[c.lease]
	c.mu.Unlock()
	l.end()
	c.stop()
	if !closed.Load() {
		t.Error("the provider was not closed")
	}
}

// The server closes a provider that it was opening when it stopped.
func TestServe_opening(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	open, opening, closed := c.opts.Open, make(chan struct{}), new(atomic.Bool)
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		close(opening)
		<-ctx.Done()
		<-time.After(300 * time.Millisecond)
		p, err := open(context.WithoutCancel(ctx), report)
		return closing{p, func() { closed.Store(true) }}, err
	}
	var all sync.WaitGroup
	all.Go(func() { c.answer("POST", "/v1/sandboxes", fumehood.Spec{}) })
	<-opening
	c.stop()
	all.Wait()
	if !closed.Load() {
		t.Error("the provider was not closed")
	}
}
