package docker_test

import (
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// wantKilled checks that a command says that its caller has killed it.
func wantKilled(t *testing.T, what string, p fumehood.Process, signal int) {
	t.Helper()
	res, err := p.Wait(t.Context())
	if err != nil || res.Outcome != fumehood.Signaled || res.Signal != signal || res.Reason != "killed by the caller" || res.Leaked || res.CausedInside {
		t.Errorf("%s: %+v, %v", what, res, err)
	}
}

// Processes that wait for a detached command learn that another one has killed it.
func TestDetached_killedElsewhere(t *testing.T) {
	t.Parallel()
	sb := keep(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	a, b := open(t, sb.Info().Name, docker.Options{}), open(t, sb.Info().Name, docker.Options{})
	for _, c := range []struct {
		user   string
		signal int // 0 means Kill
		ends   int
	}{{"", 0, 15}, {"", 9, 9}, {"tester", 0, 15}, {"tester", 9, 9}} {
		p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, User: c.user, Detach: true})
		if err != nil {
			t.Fatal(err)
		}
		id := p.Info().ID
		waits, kills := rejoined(t, a, id), rejoined(t, b, id)
		if c.signal == 0 {
			err = kills.Kill(t.Context())
		} else {
			err = kills.Signal(t.Context(), c.signal)
		}
		if err != nil {
			t.Fatal(err)
		}
		wantKilled(t, "who started it", p, c.ends)
		wantKilled(t, "who waits", waits, c.ends)
		wantKilled(t, "who killed it", kills, c.ends)
		wantKilled(t, "who comes late", rejoined(t, open(t, sb.Info().Name, docker.Options{}), id), c.ends)
	}
}

// A command may kill its supervisor, or all of its user's processes, when it is to end.
func TestKill_takesSupervisor(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "tester"} {
		for name, kills := range map[string]string{"supervisor": "kill -9 $PPID", "all": "kill -9 -1"} {
			t.Run(name+" of "+user, func(t *testing.T) {
				t.Parallel()
				sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
				p := begun(t, sb, fumehood.Cmd{Args: []string{"sh", "-c", "trap '" + kills + "' TERM; echo begun; setsid sleep 1000 & sleep 1000 & wait"}, User: user})
				if err := p.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantKilled(t, user, p, 9)
				if got := sh(t, sb, "ps ax | grep -c '[s]leep 1000'; true"); got != "0" {
					t.Errorf("%s of its processes are still running", got)
				}
			})
		}
	}
}
