package docker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// killsWorkers kills all processes that supervise commands, except its own, as soon as they appear.
const killsWorkers = `import os
own = os.getppid()
print("ready", flush=True)
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, own, os.getpid()):
            try:
                with open("/proc/" + name + "/cmdline", "rb") as f:
                    if f.read().split(b"\0")[1:2] == [b"worker"]: os.kill(int(name), 9)
            except OSError: pass`

// A program that kills what supervises other commands causes no failure of ours.
func TestExec_workersKilled(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	killer, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", killsWorkers}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range killer.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil {
			t.Fatal(err)
		}
		break // it kills now
	}
	failed := 0
	for range 100 {
		if failed == 2 {
			return
		}
		began := time.Now()
		r, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		switch {
		case err == nil && (r.Success() || r.Outcome == fumehood.Lost && r.CausedInside):
		case errors.Is(err, fumehood.ErrBroken) && !errors.Is(err, fumehood.ErrInfrastructure):
			failed++
		default:
			t.Errorf("got %+v, %v", r, err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
	}
	t.Logf("%d starts have failed", failed) // the others were faster than it
}
