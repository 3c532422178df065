package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{Version: "v1", Limits: Limits{Sandboxes: 7}})
	box := c.box()
	var st api.Status
	c.ok("GET", "/v1/status?image=any", nil, &st)
	if st.Version.Version != "v1" || st.Instance != c.Instance() || st.Provider != "local" || st.Sandboxes != 1 || st.Starting != 0 || st.MaxSandboxes != 7 || st.Draining || st.HasImage {
		t.Errorf("got %+v", st)
	}
	c.ok("POST", box+"/check", struct{}{}, nil)
	c.fails(422, fumehood.CodeUnsupported, "POST", box+"/stop", struct{}{})
	c.fails(403, fumehood.CodePermission, "POST", "/v1/cleanup", api.Cleanup{})
	c.ok("POST", box+"/symlink", map[string]string{"path": "link", "target": "to"}, nil)
	var info api.FileInfo
	if c.ok("GET", box+"/stat?path=link", nil, &info); info.Target != "to" {
		t.Errorf("got %+v", info)
	}
	resp := c.send("PUT", box+"/file?path=old&modified=2001-02-03T04:05:06Z", []byte("x"))
	resp.Body.Close()
	if c.ok("GET", box+"/stat?path=old", nil, &info); info.Modified.Year() != 2001 {
		t.Errorf("got %+v", info)
	}
}

// A server that drains refuses new sandboxes, and waits for those that there are.
func TestServer_Drain(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	began := time.Now()
	c.Drain(t.Context(), 200*time.Millisecond)
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("it waited for %v only", took)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.Drain(context.WithoutCancel(t.Context()), time.Minute)
	}()
	resp := c.send("POST", "/v1/sandboxes", fumehood.Spec{})
	var f errorAnswer
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || resp.StatusCode != http.StatusServiceUnavailable || f.Body.Code != fumehood.CodeUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %+v %v, %v", resp.StatusCode, f.Body, resp.Header, err)
	}
	resp.Body.Close()
	var st api.Status
	if c.ok("GET", "/v1/status", nil, &st); !st.Draining {
		t.Errorf("got %+v", st)
	}
	_, metrics := c.answer("GET", "/metrics", nil)
	for _, line := range []string{"fumehood_draining 1\n", "fumehood_starts_refused_total 1\n", "fumehood_sandboxes 1\n"} {
		if !strings.Contains(string(metrics), line) {
			t.Errorf("%q is missing:\n%s", line, metrics)
		}
	}
	c.ok("POST", box+"/run", sh("true"), nil)
	c.ok("DELETE", box, nil, nil)
	select {
	case <-drained:
	case <-time.After(20 * time.Second):
		t.Error("it waits without a sandbox")
	}
}

// With wait, a reader may stop reading for longer than others. It misses nothing, until its lease ends.
func TestEvents_wait(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{silence: 200 * time.Millisecond})
	box := c.box()
	const size = 20 << 20
	cmd := sh(fmt.Sprintf("head -c %d /dev/zero; touch done", size))
	cmd.Events = true
	var p api.Process
	c.ok("POST", box+"/processes", cmd, &p)
	resp := c.send("GET", box+"/processes/"+p.ID+"/events?wait=true", nil)
	defer resp.Body.Close()
	<-time.After(time.Second) // longer than the silence
	c.fails(404, fumehood.CodeNotFound, "GET", box+"/stat?path=done", nil)
	lines, got := bufio.NewReader(resp.Body), int64(0)
	for {
		line, err := lines.ReadBytes('\n')
		var e api.Event
		if err == nil {
			err = json.Unmarshal(bytes.TrimSpace(line), &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == api.EventEnd {
			break
		}
		if e.Type == api.EventOutput {
			if e.Offset != got {
				t.Fatalf("at %d, want %d", e.Offset, got)
			}
			got += int64(len(e.Data))
		}
	}
	if got != size {
		t.Errorf("%d bytes, want %d", got, size)
	}
	c.ok("POST", box+"/processes", cmd, &p) // the end of the lease ends the wait, or the server would not stop
	blocked := c.send("GET", box+"/processes/"+p.ID+"/events?wait=true", nil)
	defer blocked.Body.Close()
	c.ok("DELETE", "/v1/leases/"+c.lease, nil, nil)
	began := time.Now()
	c.stop()
	if took := time.Since(began); took > stopTime {
		t.Errorf("the server stopped after %v", took)
	}
}
