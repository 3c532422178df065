package docker_test

import (
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// wantKilled checks that a command says that its caller has killed it.
func wantKilled(t *testing.T, name string, p fumehood.Process, signal int) {
	t.Helper()
	res, err := p.Wait(t.Context())
	if err != nil || res.Outcome != fumehood.Signaled || res.Signal != signal || res.Reason != "killed by the caller" || res.Leaked || res.CausedInside {
		t.Errorf("%s: %+v, %v", name, res, err)
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
