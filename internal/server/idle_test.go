package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// start starts a sandbox with a query, and returns its path.
func (c *served) start(query string) string {
	c.t.Helper()
	var sb api.Sandbox
	c.ok("POST", "/v1/sandboxes?"+query, fumehood.Spec{}, &sb)
	return "/v1/sandboxes/" + sb.ID
}

// idled reports whether the server has removed a sandbox, and checks the error of calls about it.
func (c *served) idled(box string, hints ...string) bool {
	c.t.Helper()
	if len(c.left()) > 0 {
		return false
	}
	status, body := c.answer("POST", box+"/run", sh("true"))
	var failed struct{ Error api.Error }
	if err := json.Unmarshal(body, &failed); err != nil || status != http.StatusNotFound || failed.Error.Code != api.CodeSandboxNotFound {
		c.t.Errorf("status %d: %s", status, body)
	}
	for _, part := range hints {
		if !strings.Contains(failed.Error.Message+failed.Error.Hint, part) {
			c.t.Errorf("no %q in %s", part, body)
		}
	}
	return true
}

func TestIdle(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.start("idle_ms=300")
	eventually(t, "it is removed", func() bool { return c.idled(box, "300ms", "idle") })
}

// Calls and running commands keep a sandbox, also commands whose client is gone.
func TestIdle_used(t *testing.T) {
	t.Parallel()
	const idle, runs = 2 * time.Second, 5 * time.Second // a busy machine answers within two seconds
	for name, use := range map[string]func(c *served, box, script, file string){
		"run": func(c *served, box, script, _ string) { c.ok("POST", box+"/run", sh(script), nil) },
		"started": func(c *served, box, script, file string) {
			c.ok("POST", box+"/processes", sh(script), nil)
			eventually(c.t, "the command ends", exists(file))
		},
		"detached": func(c *served, box, script, file string) {
			cmd := sh(script)
			cmd.Detach = true
			c.ok("POST", box+"/processes", cmd, nil)
			eventually(c.t, "the command ends", exists(file))
		},
		"connection broke": func(c *served, box, script, file string) {
			ctx, cancel := context.WithTimeout(c.t.Context(), 100*time.Millisecond)
			defer cancel()
			body, err := json.Marshal(sh(script))
			if err != nil {
				c.t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost"+box+"/run", bytes.NewReader(body))
			if err != nil {
				c.t.Fatal(err)
			}
			req.Header = http.Header{"Fumehood-Lease": {c.lease}, "Idempotency-Key": {c.lease + "-a"}, "Content-Type": {"application/json"}}
			if resp, err := c.http.Do(req); err == nil {
				resp.Body.Close()
				c.t.Error("the request was not broken")
			}
			eventually(c.t, "the command ends", exists(file))
		},
		"calls": func(c *served, box, _, _ string) {
			began := time.Now()
			eventually(c.t, "five seconds pass", func() bool {
				c.ok("GET", box, nil, nil)
				return time.Since(began) > runs
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, Options{})
			file := filepath.Join(t.TempDir(), "ended")
			box, began := c.start("idle_ms=2000"), time.Now()
			use(c, box, "sleep 5; touch "+file, file)
			if took := time.Since(began); took < idle {
				t.Fatalf("it was used for %v only", took)
			}
			c.ok("GET", box, nil, nil) // it is still there
			eventually(t, "it is removed", func() bool { return c.idled(box, "2s") })
		})
	}
}

// exists returns whether a file of this machine exists.
func exists(file string) func() bool {
	return func() bool {
		_, err := os.Stat(file)
		return err == nil
	}
}

// The server's own time holds for sandboxes without one, and bounds theirs.
func TestIdle_server(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{Limits: Limits{Idle: 300 * time.Millisecond}})
	box := c.start("")
	eventually(t, "it is removed", func() bool { return c.idled(box, "300ms", "--idle") })
	c.fails(http.StatusTooManyRequests, fumehood.CodeLimit, "POST", "/v1/sandboxes?idle_ms=301", fumehood.Spec{})
	c.fails(http.StatusUnprocessableEntity, fumehood.CodeConfig, "POST", "/v1/sandboxes?idle_ms=-1", fumehood.Spec{})
}

// A kept sandbox has a TTL instead.
func TestIdle_kept(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{Permit: Permit{Kept: true}})
	c.fails(http.StatusBadRequest, fumehood.CodeConfig, "POST", "/v1/sandboxes?idle_ms=1000", fumehood.Spec{Keep: true, TTL: time.Hour})
}

// A name is free again, and what its next sandbox does is its own.
func TestIdle_sameName(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	spec := fumehood.Spec{Name: "idle-again"}
	c.ok("POST", "/v1/sandboxes?idle_ms=200", spec, nil)
	eventually(t, "it is removed", func() bool { return c.idled("/v1/sandboxes/idle-again", "200ms") })
	c.ok("POST", "/v1/sandboxes", spec, nil)
	c.ok("POST", "/v1/sandboxes/idle-again/run", sh("true"), nil)
	c.ok("DELETE", "/v1/sandboxes/idle-again", nil, nil)
	if _, body := c.answer("GET", "/v1/sandboxes/idle-again", nil); strings.Contains(string(body), "idle time") {
		t.Errorf("got %s", body)
	}
}
