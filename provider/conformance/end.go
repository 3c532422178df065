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
	{"a command over its wall limit is a timeout, on time, with what it printed", func(t *testing.T, c *Case) {
		const wall = time.Second
		cmd := c.Probe("print", "partial", probe.Then, "printerr", "both", probe.Then, "sleep", "10m")
		cmd.Wall = wall
		res := c.Exec(t, cmd)
		if res.Outcome != fumehood.TimedOut || res.ExitCode != -1 || res.Signal != 0 || res.Success() {
			t.Errorf("got %s, code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
		}
		wantOutput(t, "stdout", res.Stdout, "partial")
		wantOutput(t, "stderr", res.Stderr, "both")
		if res.Wall < wall || res.Wall > slack*wall {
			t.Errorf("a limit of %v took %v", wall, res.Wall)
		}
	}},
	{"a command within its wall limit is not touched by it", func(t *testing.T, c *Case) {
		cmd := c.Probe("exit", "124")
		cmd.Wall = within
		if res := c.Exec(t, cmd); res.Outcome != fumehood.Exited || res.ExitCode != 124 || res.Wall > within {
			t.Errorf("got %+v", res)
		}
	}},
	{"a program that floods is timed out too", func(t *testing.T, c *Case) {
		cmd := c.Probe("flood", "1000000000000000")
		cmd.Wall = time.Second
		cmd.StdoutCap = 100
		res := c.Exec(t, cmd)
		if res.Outcome != fumehood.TimedOut || res.Stdout.Total == 0 || res.Wall > slack*cmd.Wall {
			t.Errorf("got %s after %v, %d bytes", res.Outcome, res.Wall, res.Stdout.Total)
		}
	}},
	{"a timeout ends the command's plain children and spares its neighbours", func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		timeOut(t, c, "plain", probe.PlainFiles)
		c.Ended(t, n.clock, append(probe.PlainFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{"a timeout ends every descendant of the command and spares its neighbours", func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		if res := timeOut(t, c, "tree", probe.TreeFiles); res.Unkilled {
			t.Error("the result says Unkilled")
		}
		c.Ended(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{"cancelling ends the command at once and is an error", func(t *testing.T, c *Case) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("changed my mind")
		p, err := c.Sandbox.Start(ctx, c.Probe("append", c.Path("running"), "x", probe.Then, "sleep", "10m"))
		if err != nil {
			t.Fatal(err)
		}
		c.Exists(t, "running")
		cancel(why)
		soon(t, "the cancelled command ends", func() { _, err = p.Wait(t.Context()) })
		WantError(t, err, fumehood.ErrCancelled, why)
	}},
	{"cancelling ends every descendant of the command and spares its neighbours", func(t *testing.T, c *Case) {
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
	{"a kill ends every descendant of the command and spares its neighbours", func(t *testing.T, c *Case) {
		n := c.neighbours(t)
		p := c.Start(t, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
		c.Exists(t, "tree.leader")
		if res := kill(t, p); res.Unkilled {
			t.Error("the result says Unkilled")
		}
		c.Ended(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{"a command that is killed says that a signal ended it", func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("print", "before", probe.Then, "append", c.Path("running"), "x", probe.Then, "sleep", "10m"))
		c.Exists(t, "running")
		res := kill(t, p)
		if res.Outcome != fumehood.Signalled || res.Signal != 9 && res.Signal != 15 || res.ExitCode != 128+res.Signal {
			t.Errorf("got %s, code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
		}
		wantOutput(t, "stdout", res.Stdout, "before")
	}},
	{"children that outlive a command that ended by itself live on", func(t *testing.T, c *Case) {
		c.Run(t, "daemon", c.Path("daemon"))
		c.Alive(t, "daemon")
		c.Stop(t, "daemon")
	}},
	{"a command ends when its program does, though a child holds its output open", func(t *testing.T, c *Case) {
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
	{"leaving a stream early ends the command", func(t *testing.T, c *Case) {
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

// timeOut lets a command with descendants run into its wall limit.
func timeOut(t *testing.T, c *Case, subcommand string, files func(string) []string) *fumehood.Result {
	t.Helper()
	cmd := c.Probe(subcommand, c.Path("tree"), probe.Then, "print", "ready", probe.Then, "beat", c.Path("tree.leader"))
	cmd.Wall = 3 * time.Second
	res := c.Exec(t, cmd)
	if res.Outcome != fumehood.TimedOut || string(res.Stdout.Bytes) != "ready" {
		t.Fatalf("%s after %v, stdout %q, stderr %q, wanted %q by then", res.Outcome, res.Wall, res.Stdout.Bytes, res.Stderr.Bytes, files("tree"))
	}
	return res
}

func kill(t *testing.T, p *fumehood.Process) *fumehood.Result {
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

// neighbours is what runs beside a command that is to be ended: a command, a daemon, a file.
type neighbours struct {
	clock, daemon string // heartbeats
	process       *fumehood.Process
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

// intact checks that the neighbours live, and ends them.
func (n neighbours) intact(t *testing.T, c *Case) {
	t.Helper()
	c.Alive(t, n.clock, n.daemon)
	if got := c.Read(t, "neighbour-file"); got != "keep me" {
		t.Errorf("the neighbour's file holds %q", got)
	}
	c.Stop(t, n.clock, n.daemon)
	res, err := n.process.Wait(t.Context())
	if err != nil || !res.Success() {
		t.Errorf("the neighbour ended with %+v, %v", res, err)
	}
}
