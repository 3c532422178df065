package docker_test

import (
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

// On the Engine's default bridge, a sandbox could reach the ports of all others.
func TestSandbox_bridgeIsolated(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	spec := fumehood.Spec{Image: debian, Network: fumehood.Network{Mode: fumehood.NetworkBridge}}
	one, other := start(t, p, spec), start(t, p, spec)
	const serve = `
import socket, os
s = socket.create_server(("0.0.0.0", 7777))
print(socket.gethostbyname(socket.gethostname()), flush=True)
while True: s.accept()[0].sendall(b"reached")
`
	const reach = `
import socket, sys
print(socket.create_connection((sys.argv[1], 7777), 2).recv(7).decode())
`
	server, err := one.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", serve}})
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	for ev, err := range server.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if address = strings.TrimSpace(string(ev.Data)); address != "" {
			break
		}
	}
	reaches := func(sb fumehood.Sandbox) bool {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", reach, address}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(res.Stdout.Text()) == "reached"
	}
	if !reaches(one) {
		t.Errorf("%s is not reached in its own sandbox", address)
	}
	d := engineOf(t)
	version, err := d.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if engine.VersionLess(version.Version, engine.GoodEngine) { // it isolates nothing while another test makes a network
		conformance.Eventually(t, "the sandbox does not reach the other one", func() bool { return !reaches(other) })
	} else if reaches(other) {
		t.Errorf("the sandbox reaches %s", address)
	}
	if there, err := d.HasNetwork(t.Context(), compose.OwnPrefix(one.Info().Name)+"default"); err != nil || !there {
		t.Errorf("the network is not there: %v", err)
	}
	spec.Name = one.Info().Name
	if _, err := newProvider(t, docker.Options{}).Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "a sandbox of that name exists already") {
		t.Errorf("second sandbox of the same name: %v", err)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if there, err := d.HasNetwork(t.Context(), compose.OwnPrefix(spec.Name)+"default"); err != nil || there {
		t.Errorf("the network is left: %v", err)
	}
}
