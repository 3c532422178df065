package docker_test

import (
	"os"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// A rootless daemon of version 20.10 starts root without capabilities in a container whose user is not root. It can
// also start it with all capabilities, which this machine's own daemon may not be able to do.
func TestPromises_rootlessDaemon(t *testing.T) {
	tier.Need(t, tier.All)
	t.Parallel()
	commandsAsRoot("rootless daemon", docker.Options{
		Host: dockertest.StartRootlessDaemon(t, debian).Host, NoSockets: true, StateDir: t.TempDir(), AllowUnenforcedLimits: true,
	}).run(t, probeProgram(t))
}

func TestPromises_newEngine(t *testing.T) {
	tier.Need(t, tier.All)
	t.Parallel()
	opts := docker.Options{Host: dockertest.StartNewDaemon(t, debian).Host, StateDir: t.TempDir()}
	c := commandsAsRoot("Engine 28", opts)
	c.run(t, probeProgram(t))
	c.name, c.as, c.exceptions = "docker guest debian user, Engine 28", "", nil
	c.run(t, probeProgram(t))
}

// commandsAsRoot is a column with commands run by root in a service whose user is not root.
func commandsAsRoot(daemon string, opts docker.Options) column {
	return column{
		name:  "docker guest debian user, commands as root, " + daemon,
		spec:  fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester"},
		as:    "root",
		users: conformance.Users{Name: "daemon", UID: 1, GID: 1},
		opts:  opts,
		exceptions: map[string]conformance.Exception{
			"errors/forbidden file is ErrPermission": conformance.RootMayAll,
			"sandbox/info describes the sandbox": {Reason: notOwn, Check: func(t *testing.T, c *conformance.Case) {
				svc, err := c.Sandbox.Lookup(c.Sandbox.ServiceInfo().Name)
				if err != nil || svc.ServiceInfo().User != "tester" || c.Sandbox.ServiceInfo().User != "root" {
					t.Errorf("got %+v and %+v, %v", svc.ServiceInfo(), c.Sandbox.ServiceInfo(), err)
				}
			}},
			"users/As sets the commands' default user": {Reason: notOwn, Check: func(t *testing.T, c *conformance.Case) {
				for user, want := range map[string]string{"daemon": "1:1", "": "1000:1000", "4321:8765": "4321:8765"} {
					cmd := c.Probe("id")
					cmd.Dir = "/"
					if res, err := c.Sandbox.As(user).Exec(t.Context(), cmd); err != nil || res.Stdout.Text() != want {
						t.Errorf("as %q: %+v, %v", user, res, err)
					}
				}
			}},
		},
	}
}

const notOwn = "commands run as root, not as the service's user"

func probeProgram(t *testing.T) []byte {
	t.Helper()
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	return program
}
