package docker_test

import (
	"os"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/dockertest"
	"github.com/fumehood/fumehood/internal/tier"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

// A rootless daemon of 20.10 starts root without capabilities in a container of another user, and may start it with all:
// that this machine's own may, is not for certain.
func TestARootlessDaemonKeepsItsPromises(t *testing.T) {
	tier.Need(t, tier.All)
	t.Parallel()
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	column{
		name:  "docker guest debian user, commands as root, rootless daemon",
		spec:  fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester"},
		as:    "root",
		users: conformance.Users{Name: "daemon", UID: 1, GID: 1},
		opts:  docker.Options{Host: dockertest.StartRootlessDaemon(t, debian).Host, NoSockets: true, StateDir: t.TempDir(), AllowUnenforcedLimits: true},
		weaker: map[string]conformance.Weaker{
			"errors/what the command's user may not touch is a permission error": conformance.RootMayAll,
		},
	}.run(t, program)
}
