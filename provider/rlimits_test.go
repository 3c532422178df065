package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

func TestNameRlimit(t *testing.T) {
	signaled := func(signal int, used time.Duration) fumehood.Result {
		return fumehood.Result{Outcome: fumehood.Signaled, Signal: signal, Usage: fumehood.Usage{User: used}}
	}
	killed := signaled(9, 2*time.Second)
	killed.Reason = "killed by the caller"
	for name, c := range map[string]struct {
		result fumehood.Result
		limit  time.Duration
		reason string
	}{
		"SIGXCPU":           {signaled(24, 0), time.Second, "killed by SIGXCPU, with a CPU limit of 1s for each process"},
		"SIGXCPU, no limit": {signaled(24, time.Minute), 0, ""},
		"SIGKILL":           {signaled(9, 2*time.Second), time.Second, "killed by SIGKILL after 2s of CPU time, with a CPU limit of 1s for each process"},
		"SIGKILL, early":    {signaled(9, time.Second/2), time.Second, ""},
		"another signal":    {signaled(11, 2*time.Second), time.Second, ""},
		"the caller":        {killed, time.Second, "killed by the caller"},
		"an exit":           {fumehood.Result{Outcome: fumehood.Exited, ExitCode: 152}, time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if nameRlimit(&c.result, c.limit); c.result.Reason != c.reason {
				t.Errorf("got %q, want %q", strings.TrimSpace(c.result.Reason), c.reason)
			}
		})
	}
}
