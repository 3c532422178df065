//go:build !linux || (!amd64 && !arm64)

package local_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/test/probe"
)

const column = "local unsupervised"

// exceptionsHere returns the exceptions of systems on which no guest supervises the commands.
func exceptionsHere() map[string]conformance.Exception {
	exceptions := conformance.NoRlimits("no rlimits")
	maps.Copy(exceptions, map[string]conformance.Exception{
		"end/timeout ends all descendants, nothing else":   groupTimeout,
		"end/cancel ends all descendants, nothing else":    groupCancel,
		"end/kill ends all descendants, nothing else":      groupKill,
		"end/KillRest kills background children":           conformance.RestLives("children unknown after the end; Leaked is set"),
		"detached/kill ends all descendants, nothing else": groupKill,
	})
	return exceptions
}

const groupReason = "kill reaches the process group only, not setsid"

var (
	groupTimeout = conformance.Exception{
		Reason: groupReason + "; Leaked is set",
		Check: func(t *testing.T, c *conformance.Case) {
			cmd := c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader"))
			cmd.Timeout = 3 * time.Second
			res := c.Exec(t, cmd)
			if res.Outcome != fumehood.TimedOut || !res.Leaked {
				t.Errorf("got %s, Leaked %v", res.Outcome, res.Leaked)
			}
			onlyTheGroupEnded(t, c)
		},
	}
	groupCancel = conformance.Exception{
		Reason: groupReason,
		Check: func(t *testing.T, c *conformance.Case) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := c.Sandbox.Start(ctx, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
			if err != nil {
				t.Fatal(err)
			}
			c.Exists(t, "tree.leader")
			cancel()
			_, err = p.Wait(t.Context())
			conformance.WantError(t, err, fumehood.ErrCanceled)
			onlyTheGroupEnded(t, c)
		},
	}
	groupKill = conformance.Exception{
		Reason: groupReason + "; Leaked is set",
		Check: func(t *testing.T, c *conformance.Case) {
			p := c.Start(t, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
			c.Exists(t, "tree.leader")
			if err := p.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if res, err := p.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || !res.Leaked {
				t.Errorf("got %+v, %v", res, err)
			}
			onlyTheGroupEnded(t, c)
		},
	}
)

// onlyTheGroupEnded checks which heartbeats of a killed tree continue, and ends those. One survivor's heartbeat is
// the clock for checking that the others have ended.
func onlyTheGroupEnded(t *testing.T, c *conformance.Case) {
	t.Helper()
	group := probe.PlainFiles("tree")
	escaped := probe.TreeFiles("tree")[len(group):]
	c.Alive(t, escaped...)
	c.AwaitEnd(t, escaped[0], append(group, "tree.leader")...)
	c.Stop(t, escaped...)
}

func hinder(string) func(*testing.T, fumehood.Sandbox) func() { return nil }
