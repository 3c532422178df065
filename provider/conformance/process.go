package conformance

import (
	"context"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var processPromises = []promise{
	{name: "signals can be handled", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("trap", "15", "caught"))
		signalWhenReady(t, p, 15)
		res, err := p.Wait(t.Context())
		if err != nil || !res.Success() || string(res.Stdout.Bytes) != "ready\ncaught" {
			t.Errorf("got %+v, %v", res, err)
		}
	}},
	{name: "unhandled signals end the program", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("print", "ready\n", probe.Then, "sleep", "10m"))
		signalWhenReady(t, p, 15)
		res, err := p.Wait(t.Context())
		if err != nil || res.Outcome != fumehood.Signaled || res.Signal != 15 || res.ExitCode != 143 {
			t.Errorf("got %+v, %v", res, err)
		}
	}},
	{name: "signal after the end does nothing", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("exit", "4"))
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(t.Context(), 9); err != nil {
			t.Error(err)
		}
		if err := p.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != 4 {
			t.Errorf("got %+v, %v", res, err)
		}
	}},
	{name: "many can wait for one command", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("wait", c.Path("go"), probe.Then, "exit", "6"))
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != 6 {
					t.Errorf("got %+v, %v", res, err)
				}
			})
		}
		c.Write(t, "go", "")
		wg.Wait()
	}},
	{name: "many can start commands at once", alone: true, check: func(t *testing.T, c *Case) {
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				p, err := c.Sandbox.Start(t.Context(), c.Probe("exit", []string{"0", "1", "2", "3"}[i%4]))
				if err != nil {
					t.Error(err)
					return
				}
				if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != i%4 {
					t.Errorf("command %d: %+v, %v", i, res, err)
				}
			})
		}
		wg.Wait()
	}},
	{name: "canceled wait leaves the command running", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("wait", c.Path("go")))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.Wait(ctx)
		WantError(t, err, fumehood.ErrCanceled)
		c.Write(t, "go", "")
		if res, err := p.Wait(t.Context()); err != nil || !res.Success() {
			t.Errorf("got %+v, %v", res, err)
		}
	}},
}

// signalWhenReady sends sig once the program has printed something.
func signalWhenReady(t *testing.T, p fumehood.Process, sig int) {
	t.Helper()
	for ev, err := range p.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Result != nil {
			t.Fatalf("the command ended before the signal: %+v", ev.Result)
		}
		break
	}
	if err := p.Signal(t.Context(), sig); err != nil {
		t.Fatal(err)
	}
}
