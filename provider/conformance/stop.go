package conformance

import (
	"context"
	"testing"

	"github.com/fumehood/fumehood"
)

var stopPromises = []promise{
	{name: "stop ends commands and keeps the sandbox", check: func(t *testing.T, c *Case) {
		sb := c.Harness.StartKept(t)
		p := c.running(t, sb)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		soon(t, "the sandbox stops", func() {
			for range 2 {
				if err := sb.Stop(ended); err != nil {
					t.Error(err)
				}
			}
		})
		soon(t, "the command ends", func() { wantEnd(t, p) })
		_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{c.Harness.Probe, "exit", "0"}})
		WantError(t, err, fumehood.ErrUnavailable)
		_, err = sb.Stat(t.Context(), ".")
		WantError(t, err, fumehood.ErrUnavailable)
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}},
	{name: "sandbox not kept cannot be stopped", check: func(t *testing.T, c *Case) {
		WantError(t, c.Sandbox.Stop(t.Context()), fumehood.ErrConfig)
		c.Run(t, "exit", "0")
	}},
}

// NoStop returns the exceptions to the promises about Stop, for a provider that cannot stop a sandbox and keep it.
func NoStop(reason string) map[string]Exception {
	all := map[string]Exception{}
	for _, name := range Promises("stop") {
		all[name] = Exception{
			Reason: reason + "; ErrUnsupported",
			Check: func(t *testing.T, c *Case) {
				WantError(t, c.Sandbox.Stop(t.Context()), fumehood.ErrUnsupported)
				c.Run(t, "exit", "0")
			},
		}
	}
	return all
}
