package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var sandboxPromises = []promise{
	{name: "info describes the sandbox", check: func(t *testing.T, c *Case) {
		info := c.Sandbox.Info()
		if info.Name == "" || info.Provider == "" || len(info.Services) == 0 {
			t.Fatalf("got %+v", info)
		}
		svc := c.Sandbox.ServiceInfo()
		if svc != info.Services[0] || svc.Name == "" || svc.Dir == "" {
			t.Errorf("the default service is %+v of %+v", svc, info.Services)
		}
		if same, err := c.Sandbox.Lookup(svc.Name); err != nil || same.ServiceInfo() != svc {
			t.Errorf("Lookup returned %v, %v", same, err)
		}
		_, err := c.Sandbox.Lookup("no such service")
		WantError(t, err, fumehood.ErrConfig)
	}},
	{name: "names and files are not shared", check: func(t *testing.T, c *Case) {
		other := c.Fresh(t)
		if other.Info().Name == c.Sandbox.Info().Name {
			t.Errorf("two sandboxes are called %s", other.Info().Name)
		}
		if err := other.WriteFile(t.Context(), "mine", []byte("x"), fumehood.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := c.Sandbox.ReadFile(t.Context(), "mine", fumehood.ReadOptions{})
		WantError(t, err, fumehood.ErrNotFound)
	}},
	{name: "close may be called twice", check: func(t *testing.T, c *Case) {
		sb := c.Fresh(t)
		for range 2 {
			if err := sb.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{name: "close works with a canceled context", check: func(t *testing.T, c *Case) {
		sb := c.Fresh(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sb.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}},
	{name: "calls after close are ErrUnavailable", check: func(t *testing.T, c *Case) {
		sb := c.Fresh(t)
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		cmd := fumehood.Cmd{Args: []string{c.Harness.Probe, "exit", "0"}}
		_, err := sb.Exec(ctx, cmd)
		WantError(t, err, fumehood.ErrUnavailable)
		_, err = sb.Start(ctx, cmd)
		WantError(t, err, fumehood.ErrUnavailable)
		for _, err := range sb.Stream(ctx, cmd) {
			WantError(t, err, fumehood.ErrUnavailable)
		}
		_, err = sb.ReadFile(ctx, "x", fumehood.ReadOptions{})
		WantError(t, err, fumehood.ErrUnavailable)
		WantError(t, sb.WriteFile(ctx, "x", nil, fumehood.WriteOptions{}), fumehood.ErrUnavailable)
		_, err = sb.Stat(ctx, "x")
		WantError(t, err, fumehood.ErrUnavailable)
		_, err = sb.As("0").List(ctx, ".")
		WantError(t, err, fumehood.ErrUnavailable)
		for _, err := range sb.Walk(ctx, ".") {
			WantError(t, err, fumehood.ErrUnavailable)
		}
		WantError(t, sb.Remove(ctx, "x", fumehood.RemoveOptions{}), fumehood.ErrUnavailable)
		WantError(t, sb.Upload(ctx, ".", strings.NewReader("")), fumehood.ErrUnavailable)
		_, err = sb.Download(ctx, ".")
		WantError(t, err, fumehood.ErrUnavailable)
	}},
	{name: "close ends running commands", check: func(t *testing.T, c *Case) {
		sb := c.Fresh(t)
		p := c.running(t, sb)
		soon(t, "the sandbox closes", func() {
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		soon(t, "the command ends", func() { wantEnd(t, p) })

		sb = c.Fresh(t) // the same for a command whose output nobody follows
		done := make(chan *fumehood.Result, 1)
		go func() {
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{
				c.Harness.Probe, "print", "running", probe.Then, "append", "printed", "x", probe.Then, "sleep", "10m",
			}})
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		soon(t, "the command prints", func() {
			for exists := false; !exists; {
				_, err := sb.Stat(t.Context(), "printed")
				exists = err == nil
			}
		})
		<-time.After(time.Second) // what was written that long before is kept
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		soon(t, "the command ends", func() {
			res := <-done
			switch {
			case res == nil:
			case res.Outcome != fumehood.Lost && res.Outcome != fumehood.Signaled || res.CausedInside:
				t.Errorf("got %+v, want the outcome Lost or Signaled", res)
			case res.Outcome == fumehood.Lost && res.Reason != "the sandbox was closed while the command ran":
				t.Errorf("the reason is %q", res.Reason)
			case res.Stdout.Text() != "running" || res.Stdout.Total != 7:
				t.Errorf("stdout is %q of %d bytes", res.Stdout.Text(), res.Stdout.Total)
			}
		})
	}},
}

// running starts a long command in sb and returns when it has printed "running".
func (c *Case) running(t *testing.T, sb fumehood.Sandbox) fumehood.Process {
	t.Helper()
	p, err := sb.Start(t.Context(), fumehood.Cmd{
		Args: []string{c.Harness.Probe, "print", "running", probe.Then, "sleep", "10m"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range p.Events() {
		if err != nil {
			t.Fatal(err)
		}
		break // the first output has come
	}
	return p
}

// wantEnd waits for a command of running whose sandbox has ended, and checks how the command ended.
func wantEnd(t *testing.T, p fumehood.Process) {
	t.Helper()
	res, err := p.Wait(t.Context())
	switch {
	case err != nil:
		if !errors.Is(fumehood.ClassOf(err), fumehood.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable or a result", err)
		}
	case res.Outcome != fumehood.Lost && res.Outcome != fumehood.Signaled:
		t.Errorf("got %+v, want the outcome Lost or Signaled", res)
	case string(res.Stdout.Bytes) != "running":
		t.Errorf("stdout is %q, want \"running\"", res.Stdout.Bytes)
	}
}
