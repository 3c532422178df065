package conformance

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var endPromises = []promise{
	{name: "timeout is punctual and keeps output", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("print", "partial", probe.Then, "printerr", "both", probe.Then, "sleep", "10m")
		res := c.TimeOut(t, cmd, func(res *fumehood.Result) bool { return res.Stderr.Total > 0 })
		if res.Outcome != fumehood.TimedOut || res.ExitCode != -1 || res.Signal != 0 || res.Success() {
			t.Errorf("got %s, code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
		}
		wantOutput(t, "stdout", res.Stdout, "partial")
		wantOutput(t, "stderr", res.Stderr, "both")
	}},
	{name: "limit has no effect before it expires", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("exit", "124")
		cmd.Timeout = within
		if res := c.Exec(t, cmd); res.Outcome != fumehood.Exited || res.ExitCode != 124 || res.Duration > within {
			t.Errorf("got %+v", res)
		}
	}},
	{name: "flooding program times out", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("flood", "1000000000000000")
		cmd.StdoutCap = 100
		res := c.TimeOut(t, cmd, func(res *fumehood.Result) bool { return res.Stdout.Total > 0 })
		if res.Outcome != fumehood.TimedOut || res.Stdout.Total == 0 {
			t.Errorf("got %s after %v, %d bytes", res.Outcome, res.Duration, res.Stdout.Total)
		}
	}},
	{name: "timeout ends plain children, nothing else", check: func(t *testing.T, c *Case) {
		n := c.neighbors(t)
		c.timeOutTree(t, "plain")
		c.AwaitEnd(t, n.clock, append(probe.PlainFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "timeout ends all descendants, nothing else", check: func(t *testing.T, c *Case) {
		n := c.neighbors(t)
		if res := c.timeOutTree(t, "tree"); res.Leaked {
			t.Error("the result has Leaked set")
		}
		c.AwaitEnd(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "cancel ends the command at once, as an error", check: func(t *testing.T, c *Case) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("changed my mind")
		p, err := c.Sandbox.Start(ctx, c.Probe("append", c.Path("running"), "x", probe.Then, "sleep", "10m"))
		if err != nil {
			t.Fatal(err)
		}
		c.Exists(t, "running")
		cancel(why)
		soon(t, "the canceled command ends", func() { _, err = p.Wait(t.Context()) })
		WantError(t, err, fumehood.ErrCanceled, why)
	}},
	{name: "cancel ends all descendants, nothing else", check: func(t *testing.T, c *Case) {
		n := c.neighbors(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p, err := c.Sandbox.Start(ctx, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
		if err != nil {
			t.Fatal(err)
		}
		c.Exists(t, "tree.leader")
		cancel()
		_, err = p.Wait(t.Context())
		WantError(t, err, fumehood.ErrCanceled)
		c.AwaitEnd(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "kill ends all descendants, nothing else", check: func(t *testing.T, c *Case) {
		n := c.neighbors(t)
		p := c.Start(t, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
		c.Exists(t, "tree.leader")
		if res := kill(t, p); res.Leaked {
			t.Error("the result has Leaked set")
		}
		c.AwaitEnd(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "killed command is signaled", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("print", "before", probe.Then, "append", c.Path("running"), "x", probe.Then, "sleep", "10m"))
		c.Exists(t, "running")
		res := kill(t, p)
		if res.Outcome != fumehood.Signaled || res.Signal != 9 && res.Signal != 15 || res.ExitCode != 128+res.Signal {
			t.Errorf("got %s, code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
		}
		wantOutput(t, "stdout", res.Stdout, "before")
	}},
	{name: "kill by the caller is the reason of the end", check: func(t *testing.T, c *Case) {
		sleep := func(name string) fumehood.Process {
			p := c.Start(t, c.Probe("append", c.Path(name), "x", probe.Then, "sleep", "10m"))
			c.Exists(t, name)
			return p
		}
		if res := kill(t, sleep("killed")); res.Outcome != fumehood.Signaled || res.Reason != "killed by the caller" {
			t.Errorf("after Kill: %s, reason %q", res.Outcome, res.Reason)
		}
		for sig, reason := range map[int]string{9: "killed by the caller", 15: ""} {
			p := sleep(strconv.Itoa(sig))
			if err := p.Signal(t.Context(), sig); err != nil {
				t.Fatal(err)
			}
			if res, err := p.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || res.Signal != sig || res.Reason != reason {
				t.Errorf("after signal %d: %+v, %v", sig, res, err)
			}
		}
		if res := c.Exec(t, c.Probe("raise", "9")); res.Outcome != fumehood.Signaled || res.Reason != "" {
			t.Errorf("of its own: %s, reason %q", res.Outcome, res.Reason)
		}
	}},
	{name: "background children survive a normal end", check: func(t *testing.T, c *Case) {
		c.Run(t, "daemon", c.Path("daemon"))
		c.Alive(t, "daemon")
		c.Stop(t, "daemon")
	}},
	{name: "KillRest kills background children", check: func(t *testing.T, c *Case) {
		n := c.neighbors(t)
		cmd := c.Probe("print", "said", probe.Then, "daemon", c.Path("daemon"), "hold", probe.Then, "exit", "5")
		cmd.KillRest = true
		res, err := c.Sandbox.Exec(t.Context(), cmd)
		if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 5 || res.Leaked || res.Stdout.Text() != "said" {
			t.Errorf("got %+v, %v", res, err)
		}
		c.AwaitEnd(t, n.clock, "daemon")
		n.intact(t, c)
		for range 3 { // its supervisor still runs other commands
			c.Run(t, "print", "x")
		}
	}},
	{name: "child holding stdout does not delay the end", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("print", "said", probe.Then, "daemon", c.Path("daemon"), "hold", probe.Then, "exit", "5")
		soon(t, "the command ends", func() {
			res, err := c.Sandbox.Exec(t.Context(), cmd)
			if err != nil || res.ExitCode != 5 || string(res.Stdout.Bytes) != "said" {
				t.Errorf("got %+v, %v", res, err)
			}
		})
		c.Alive(t, "daemon")
		c.Stop(t, "daemon")
	}},
	{name: "leaving a stream ends the command", check: func(t *testing.T, c *Case) {
		n := c.neighbors(t)
		cmd := c.Probe("plain", c.Path("tree"), probe.Then, "print", "x", probe.Then, "beat", c.Path("tree.leader"))
		for ev, err := range c.Sandbox.Stream(t.Context(), cmd) {
			if err != nil {
				t.Fatal(err)
			}
			if len(ev.Data) > 0 {
				c.Exists(t, "tree.leader")
				break
			}
		}
		c.AwaitEnd(t, n.clock, append(probe.PlainFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
}

// TimeOut runs cmd with a wall-clock limit of one second, checks that the command times out on time, and returns its
// result. If done reports false, as on a slow machine, it tries again with a longer limit.
func (c *Case) TimeOut(t *testing.T, cmd fumehood.Cmd, done func(*fumehood.Result) bool) *fumehood.Result {
	t.Helper()
	for cmd.Timeout = time.Second; ; cmd.Timeout *= 3 {
		res := c.Exec(t, cmd)
		if res.Outcome != fumehood.TimedOut {
			t.Fatalf("%.100q: %s after %v, stderr %.500q", cmd.Args, res.Outcome, res.Duration, res.Stderr.Text())
		}
		if res.Duration < cmd.Timeout || res.Duration > slack*cmd.Timeout {
			t.Errorf("a limit of %v took %v", cmd.Timeout, res.Duration)
		}
		if done(res) || cmd.Timeout > within {
			return res
		}
	}
}

// timeOutTree times out a command with descendants, once all of them run.
func (c *Case) timeOutTree(t *testing.T, subcommand string) *fumehood.Result {
	t.Helper()
	res := c.TimeOut(t, c.Probe(subcommand, c.Path("tree"), probe.Then, "print", "ready", probe.Then, "beat", c.Path("tree.leader")),
		func(*fumehood.Result) bool { return c.size(t, c.Path("tree.leader")) > 0 })
	wantOutput(t, "stdout", res.Stdout, "ready")
	return res
}

func kill(t *testing.T, p fumehood.Process) *fumehood.Result {
	t.Helper()
	soon(t, "the killed command ends", func() {
		if err := p.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	})
	res, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// neighbors is what must survive the end of a command next to it: another command, a daemon and a file.
type neighbors struct {
	clock, daemon string // files of heartbeats
	process       fumehood.Process
}

func (c *Case) neighbors(t *testing.T) neighbors {
	t.Helper()
	n := neighbors{clock: "neighbor", daemon: "neighbor-daemon"}
	c.Run(t, "daemon", c.Path(n.daemon))
	n.process = c.Start(t, c.Probe("beat", c.Path(n.clock)))
	c.Write(t, "neighbor-file", "keep me")
	c.Exists(t, n.clock)
	return n
}

// intact checks that the neighbors are alive and unchanged, and stops them.
func (n neighbors) intact(t *testing.T, c *Case) {
	t.Helper()
	c.Alive(t, n.clock, n.daemon)
	if got := c.Read(t, "neighbor-file"); got != "keep me" {
		t.Errorf("the neighbor's file holds %q", got)
	}
	c.Stop(t, n.clock, n.daemon)
	res, err := n.process.Wait(t.Context())
	if err != nil || !res.Success() {
		t.Errorf("the neighbor ended with %+v, %v", res, err)
	}
}
