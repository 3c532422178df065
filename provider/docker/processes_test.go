package docker_test

import (
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

func TestExec_manyAtOnce(t *testing.T) {
	t.Parallel()
	const commands = 60
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 6*commands + 20}})
	conformance.CheckManyCommands(t, sb, commands)
}

func TestExec_processLimit(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 100}})
	conformance.CheckProcessLimit(t, sb, 100, "", "nobody")
}

func TestKillAll(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	t.Run("guest", func(t *testing.T) {
		t.Parallel()
		conformance.CheckKillAll(t, start(t, p, fumehood.Spec{Image: debian}), nil, "", "nobody")
	})
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		conformance.CheckKillAll(t, start(t, p, fumehood.Spec{Image: debian, User: "nobody"}), nil, "", "daemon")
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		sb := keep(t, p, fumehood.Spec{Image: debian})
		conformance.CheckKillAll(t, sb, nil, "", "nobody")
	})
	t.Run("own program", func(t *testing.T) {
		t.Parallel()
		sb := start(t, p, fumehood.Spec{Compose: project(t, `
services:
  default: {image: fumehood-test/python, command: [sh, -c, "setsid sleep 1001 & sleep 1002"]}
  other: {image: fumehood-test/python, command: [sleep, "1000"]}`)})
		other, err := sb.Lookup("other")
		if err != nil {
			t.Fatal(err)
		}
		conformance.CheckKillAll(t, sb, other, "", "nobody")
		if got := sh(t, sb, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 100[12]' | sort -u | wc -l"); strings.TrimSpace(got) != "2" {
			t.Errorf("the service's own program has %s processes", got)
		}
	})
}

func TestKillAll_viaEngine(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	running, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "sleep 1003 & echo on; wait"}, ViaEngine: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range running.Events() {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if err := sb.KillAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := running.Wait(t.Context()); err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 137 {
		t.Errorf("%+v, %v", res, err)
	}
	if got := sh(t, sb, "grep -l 'sleep.100[3]' /proc/[0-9]*/cmdline || true"); got != "" {
		t.Errorf("left: %s", got)
	}
	err = start(t, newProvider(t, docker.Options{Transport: docker.TransportEngine}), fumehood.Spec{Image: debian}).KillAll(t.Context())
	conformance.WantError(t, err, fumehood.ErrUnsupported)
}

// With the default limit, nothing but the guest keeps programs from using up all processes.
func TestExec_forkBomb(t *testing.T) {
	for name, bomb := range conformance.ForkBombs {
		t.Run(name, func(t *testing.T) {
			if name != "holding" {
				tier.Need(t, tier.All) // it takes the processors from all other tests
			}
			sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
			conformance.CheckForkBomb(t, sb, fumehood.DefaultPIDs, bomb, "")
		})
	}
}
