package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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

// asking sends a request of the client that is killed. A body that is a reader has no end: the client then says nothing.
type asking func(method, path string, body any, headers ...string)

// A client that is killed, whatever it is doing, leaves nothing.
func TestClient_killed(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{"env.yaml": "type: local\n", "task.yaml": "{name: slow, environment: {file: env.yaml}, samples: [{id: a, command: sleep 600}]}\n"})
	for name, phase := range map[string]func(c *served, ask asking){
		"holds":   func(*served, asking) {},
		"creates": func(_ *served, ask asking) { ask("POST", "/v1/sandboxes", fumehood.Spec{}) },
		"creates with a key": func(c *served, ask asking) {
			ask("POST", "/v1/sandboxes", fumehood.Spec{}, "Idempotency-Key", c.lease+"-1")
		},
		"runs": func(c *served, ask asking) {
			ask("POST", c.box()+"/run", sh("sleep 600"))
			eventually(c.t, "it runs", func() bool { return c.commands.Load() == 1 })
		},
		"runs with a key": func(c *served, ask asking) {
			ask("POST", c.box()+"/run", sh("sleep 600"), "Idempotency-Key", c.lease+"-1")
			eventually(c.t, "it runs", func() bool { return c.commands.Load() == 1 })
		},
		"follows": func(c *served, ask asking) {
			var p api.Process
			box := c.box()
			c.ok("POST", box+"/processes", sh("yes"), &p)
			ask("GET", box+"/processes/"+p.ID+"/events", nil)
		},
		"uploads": func(c *served, ask asking) {
			ask("PUT", c.box()+"/file?path=a", strings.NewReader("part"))
		},
		"downloads": func(c *served, ask asking) {
			box := c.box()
			c.ok("PUT", box+"/file?path=a", make([]byte, 8<<20), nil)
			ask("GET", box+"/file?path=a", nil)
		},
		"streams in a session": func(c *served, ask asking) {
			s := c.open(api.SessionOptions{Workspace: dir})
			var r api.Runtime
			c.ok("POST", s+"/runtimes", api.SpawnOptions{}, &r)
			ask("POST", s+"/runtimes/"+r.ID+"/stream", api.Execute{Command: "sleep 600"})
			eventually(c.t, "it runs", func() bool { return c.commands.Load() == 1 })
		},
		"opens a session": func(_ *served, ask asking) {
			ask("POST", "/v1/sessions", api.SessionOptions{Environment: "type: local", Kind: session.Agent, Workspace: dir})
		},
		"evaluates": func(c *served, ask asking) {
			var e api.Evaluation
			c.ok("POST", "/v1/evaluations", api.EvaluationOptions{Task: dir, Runs: dir}, &e)
			ask("GET", "/v1/evaluations/"+e.ID+"/events", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, Options{grace: time.Second, Permit: Permit{HostPaths: []string{dir}}})
			var opened api.Lease
			c.ok("POST", "/v1/leases", struct{}{}, &opened)
			c.lease = opened.ID
			ctx, kill := context.WithCancel(t.Context())
			client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", c.path)
			}}}
			asked := make(chan struct{})
			phase(c, func(method, path string, body any, headers ...string) {
				r, ok := body.(io.Reader)
				if ok {
					r = io.MultiReader(r, silent{ctx})
				} else {
					text, err := json.Marshal(body)
					if err != nil {
						t.Fatal(err)
					}
					r = bytes.NewReader(text)
				}
				req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, r)
				if err != nil {
					t.Fatal(err)
				}
				req.Header = http.Header{"Fumehood-Lease": {c.lease}, "Content-Type": {"application/json"}}
				for i := 0; i < len(headers); i += 2 {
					req.Header.Set(headers[i], headers[i+1])
				}
				go func() {
					defer close(asked)
					resp, err := client.Do(req)
					if err != nil {
						return
					}
					defer resp.Body.Close()
					_, _ = io.CopyN(io.Discard, resp.Body, 100)
					<-ctx.Done()
				}()
			})
			if name == "holds" {
				close(asked)
			}
			kill()
			client.CloseIdleConnections()
			<-asked
			eventually(t, "its lease has ended", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.leases) == 1
			})
			eventually(t, "nothing is left", func() bool { return len(c.left()) == 0 && c.commands.Load() == 0 })
		})
	}
}

// silent is the rest of a body whose sender is silent until it is killed.
type silent struct{ ctx context.Context } //nolint:containedctx // as long as the sender

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.EOF
}

// A client that closes its half of a connection gets its answer by a repeat, and its command runs once.
func TestGuard_halfClosed(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	cmd, runs := counting(t, "sleep 0.3; echo done")
	text, err := json.Marshal(cmd)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	key := c.lease + "-1"
	head := fmt.Sprintf("POST %s/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nFumehood-Lease: %s\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n", box, c.lease, key, len(text))
	if _, err := io.WriteString(conn, head+string(text)); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var res fumehood.Result
	c.ok("POST", box+"/run", json.RawMessage(text), &res, "Idempotency-Key", key)
	if res.Stdout.Text() != "done\n" || runs() != 1 {
		t.Errorf("%d runs, and %+v", runs(), res)
	}
	eventually(t, "the connection is closed", func() bool {
		_, err := io.ReadAll(conn) // an answer, or none
		return err == nil
	})
}

// faulty is a provider that calls fault before it starts a sandbox or prepares images.
type faulty struct {
	fumehood.Provider
	fault func()
}

func (p faulty) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	p.fault()
	return p.Provider.Start(ctx, spec)
}

func (faulty) ImageKey(context.Context, fumehood.Spec) (string, error) { return "", nil }

func (p faulty) Prepare(context.Context, fumehood.Spec, provider.PrepareOptions) (map[string]string, error) {
	p.fault()
	return map[string]string{}, nil
}

// breaks makes the server's provider call fault. No sandbox may have been requested before.
func (c *served) breaks(fault func()) {
	open := c.opts.Open
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		p, err := open(ctx, report)
		return faulty{p, fault}, err
	}
}

// A handler that panics breaks its own connection only. It is logged, and leaves nothing that is held or counted. A
// repeat of its request does not wait.
func TestServer_panic(t *testing.T) {
	t.Parallel()
	var log logged
	c := serve(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Limits: Limits{Sandboxes: 1}})
	var fixed atomic.Bool
	c.breaks(func() {
		if !fixed.Load() {
			panic("defect")
		}
	})
	send := func(path, key string) string {
		return c.raw("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nFumehood-Lease: " + c.lease + key + "\r\nContent-Length: 2\r\n\r\n{}")
	}
	key := "\r\nIdempotency-Key: " + c.lease + "-1"
	for _, r := range []struct{ path, key string }{{"/v1/sandboxes", ""}, {"/v1/sandboxes", key}, {"/v1/images", ""}} {
		if got := send(r.path, r.key); got != "" {
			t.Errorf("%s: got %s", r.path, got)
		}
	}
	if got := send("/v1/sandboxes", key); !strings.HasPrefix(got, "HTTP/1.1 500 ") || !strings.Contains(got, `"class":"infrastructure"`) {
		t.Errorf("the repeat got %s", got)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 3 || !strings.Contains(log.String(), "defect") {
		t.Errorf("%d errors in the log:\n%s", n, log.String())
	}
	if _, metrics := c.answer("GET", "/metrics", nil); !strings.Contains(string(metrics), `{status="5xx"} 4`) {
		t.Errorf("the metrics are\n%s", metrics)
	}
	eventually(t, "only the connection holds the lease", func() bool {
		c.mu.Lock()
		l := c.leases[c.lease]
		c.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.holders.number == 1
	})
	c.reports.mu.Lock()
	if n := len(c.reports.all); n != 0 {
		t.Errorf("%d receivers of reports", n)
	}
	c.reports.mu.Unlock()
	fixed.Store(true)
	c.box()
}

// renewing is a provider of kept sandboxes.
type renewing struct {
	fumehood.Provider
	provider.Opener
}

func (renewing) Renew(_ context.Context, _ string, ttl time.Duration) (time.Time, error) {
	return time.Unix(0, 0).Add(ttl), nil
}

// namedSandbox is a sandbox with a name alone.
type namedSandbox struct{ fumehood.Sandbox }

func (namedSandbox) Info() fumehood.Info { return fumehood.Info{Name: "kept"} }

// A kept sandbox is described while it is renewed, and no renewal makes its expiry earlier.
func TestRenew_concurrent(t *testing.T) {
	s := New(t.Context(), Options{})
	var p fumehood.Provider = renewing{}
	s.opened.Store(&p)
	h := newHeld(s, nil, namedSandbox{})
	h.keep = true
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := h.renew(t.Context(), time.Duration(i)*time.Hour); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { h.describe() })
	}
	all.Wait()
	if got, want := h.describe().Expires, time.Unix(0, 0).Add(7*time.Hour); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// listing is a provider that lists one kept sandbox.
type listing struct {
	fumehood.Provider
	provider.Opener
	kept provider.KeptSandbox
}

func (l listing) Kept(context.Context, ...string) ([]provider.KeptSandbox, error) {
	return []provider.KeptSandbox{l.kept}, nil
}

// A new kept sandbox has the expiry that a list has.
func TestCreate_expiry(t *testing.T) {
	t.Parallel()
	c := callDirectly(t, Options{Permit: Permit{Kept: true}})
	open := c.opts.Open
	want := time.Now().Add(59 * time.Minute).UTC().Truncate(time.Second)
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		p, err := open(ctx, report)
		return listing{Provider: p, kept: provider.KeptSandbox{Info: fumehood.Info{Name: "listed"}, Expires: want}}, err
	}
	var got api.Sandbox
	c.ok("POST", "/v1/sandboxes", fumehood.Spec{Name: "listed", Keep: true, TTL: time.Hour}, &got)
	if !got.Expires.Equal(want) {
		t.Errorf("it expires at %v, want %v", got.Expires, want)
	}
}

// openable is a provider of a kept sandbox that another process has started.
type openable struct {
	listing
	gone *bool
}

func (o openable) Open(context.Context, string) (fumehood.Sandbox, error) {
	return openedSandbox{}, nil
}

func (o openable) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	if *o.gone {
		return nil, nil
	}
	return o.listing.Kept(ctx, names...)
}

type openedSandbox struct{ namedSandbox }

func (openedSandbox) Close(context.Context) error { return nil }

// A kept sandbox of another process has its expiry, also after that has renewed it, and none once that has removed it.
func TestFind_keptElsewhere(t *testing.T) {
	t.Parallel()
	c := callDirectly(t, Options{Permit: Permit{Kept: true}})
	open := c.opts.Open
	gone, want := false, time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	p := openable{listing: listing{kept: provider.KeptSandbox{Info: fumehood.Info{Name: "kept"}, Expires: want}}, gone: &gone}
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		var err error
		p.Provider, err = open(ctx, report)
		return &p, err
	}
	for range 2 {
		var got api.Sandbox
		c.ok("GET", "/v1/sandboxes/kept", nil, &got)
		if !got.Kept || !got.Expires.Equal(want) {
			t.Errorf("got %+v, want it to expire at %v", got, want)
		}
		want = want.Add(time.Hour)
		p.kept.Expires = want
	}
	gone = true
	if e := c.fails("GET", "/v1/sandboxes/kept"); e.Code != api.CodeSandboxNotFound {
		t.Errorf("got %+v", e)
	}
	if n := len(c.kept); n != 0 {
		t.Errorf("%d kept sandboxes are in memory", n)
	}
}

// The error about a sandbox that may be a kept one has the flag that permits those.
func TestFind_keptNotPermitted(t *testing.T) {
	t.Parallel()
	c := callDirectly(t, Options{})
	if e := c.fails("GET", "/v1/sandboxes/kept"); e.Code != api.CodeSandboxNotFound || e.Flag != flagKept {
		t.Errorf("got %+v", e)
	}
}
