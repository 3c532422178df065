package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance/probe"
)

var endPromises = []promise{
	{name: "a command over its wall limit is a timeout, on time, with what it printed", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("print", "partial", probe.Then, "printerr", "both", probe.Then, "sleep", "10m")
		res := c.TimeOut(t, cmd, func(res *fumehood.Result) bool { return res.Stderr.Total > 0 })
		if res.Outcome != fumehood.TimedOut || res.ExitCode != -1 || res.Signal != 0 || res.Success() {
			t.Errorf("got %s, code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
		}
		wantOutput(t, "stdout", res.Stdout, "partial")
		wantOutput(t, "stderr", res.Stderr, "both")
	}},
	{name: "a command within its wall limit is not touched by it", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("exit", "124")
		cmd.Timeout = within
		if res := c.Exec(t, cmd); res.Outcome != fumehood.Exited || res.ExitCode != 124 || res.Duration > within {
			t.Errorf("got %+v", res)
		}
	}},
	{name: "a program that floods is timed out too", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("flood", "1000000000000000")
		cmd.StdoutCap = 100
		res := c.TimeOut(t, cmd, func(res *fumehood.Result) bool { return res.Stdout.Total > 0 })
		if res.Outcome != fumehood.TimedOut || res.Stdout.Total == 0 {
			t.Errorf("got %s after %v, %d bytes", res.Outcome, res.Duration, res.Stdout.Total)
		}
	}},
	{name: "a timeout ends the command's plain children and spares its neighbours", check: func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		c.timeOutTree(t, "plain")
		c.Ended(t, n.clock, append(probe.PlainFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "a timeout ends every descendant of the command and spares its neighbours", check: func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		if res := c.timeOutTree(t, "tree"); res.Leaked {
			t.Error("the result has Leaked set")
		}
		c.Ended(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "cancelling ends the command at once and is an error", check: func(t *testing.T, c *Case) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("changed my mind")
		p, err := c.Sandbox.Start(ctx, c.Probe("append", c.Path("running"), "x", probe.Then, "sleep", "10m"))
		if err != nil {
			t.Fatal(err)
		}
		c.Exists(t, "running")
		cancel(why)
		soon(t, "the canceled command ends", func() { _, err = p.Wait(t.Context()) })
		WantError(t, err, fumehood.ErrCancelled, why)
	}},
	{name: "cancelling ends every descendant of the command and spares its neighbours", check: func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p, err := c.Sandbox.Start(ctx, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
		if err != nil {
			t.Fatal(err)
		}
		c.Exists(t, "tree.leader")
		cancel()
		_, err = p.Wait(t.Context())
		WantError(t, err, fumehood.ErrCancelled)
		c.Ended(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "a kill ends every descendant of the command and spares its neighbours", check: func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		p := c.Start(t, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
		c.Exists(t, "tree.leader")
		if res := kill(t, p); res.Leaked {
			t.Error("the result has Leaked set")
		}
		c.Ended(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "a command that is killed says that a signal ended it", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("print", "before", probe.Then, "append", c.Path("running"), "x", probe.Then, "sleep", "10m"))
		c.Exists(t, "running")
		res := kill(t, p)
		if res.Outcome != fumehood.Signaled || res.Signal != 9 && res.Signal != 15 || res.ExitCode != 128+res.Signal {
			t.Errorf("got %s, code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
		}
		wantOutput(t, "stdout", res.Stdout, "before")
	}},
	{name: "children that outlive a command that ended by itself live on", check: func(t *testing.T, c *Case) {
		c.Run(t, "daemon", c.Path("daemon"))
		c.Alive(t, "daemon")
		c.Stop(t, "daemon")
	}},
	{name: "children that outlive a command that ended by itself are killed with it, where that is asked for", check: func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		cmd := c.Probe("print", "said", probe.Then, "daemon", c.Path("daemon"), "hold", probe.Then, "exit", "5")
		cmd.KillRest = true
		res, err := c.Sandbox.Exec(t.Context(), cmd)
		if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 5 || res.Leaked || res.Stdout.Text() != "said" {
			t.Errorf("got %+v, %v", res, err)
		}
		c.Ended(t, n.clock, "daemon")
		n.intact(t, c)
		for range 3 { // its supervisor still runs other commands
			c.Run(t, "print", "x")
		}
	}},
	{name: "a command ends when its program does, though a child holds its output open", check: func(t *testing.T, c *Case) {
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
	{name: "leaving a stream early ends the command", check: func(t *testing.T, c *Case) {
		n := c.neighbours(t)
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
		c.Ended(t, n.clock, append(probe.PlainFiles("tree"), "tree.leader")...)
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

// neighbours is what must survive the end of a command next to it: another command, a daemon and a file.
type neighbours struct {
	clock, daemon string // files of heartbeats
	process       fumehood.Process
}

func (c *Case) neighbours(t *testing.T) neighbours {
	t.Helper()
	n := neighbours{clock: "neighbour", daemon: "neighbour-daemon"}
	c.Run(t, "daemon", c.Path(n.daemon))
	n.process = c.Start(t, c.Probe("beat", c.Path(n.clock)))
	c.Write(t, "neighbour-file", "keep me")
	c.Exists(t, n.clock)
	return n
}

// intact checks that the neighbors are alive and unchanged, and stops them.
func (n neighbours) intact(t *testing.T, c *Case) {
	t.Helper()
	c.Alive(t, n.clock, n.daemon)
	if got := c.Read(t, "neighbour-file"); got != "keep me" {
		t.Errorf("the neighbor's file holds %q", got)
	}
	c.Stop(t, n.clock, n.daemon)
	res, err := n.process.Wait(t.Context())
	if err != nil || !res.Success() {
		t.Errorf("the neighbor ended with %+v, %v", res, err)
	}
}
