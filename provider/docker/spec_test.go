package docker_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

func TestPorts_loopbackOnly(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{
		Image: debian, Network: fumehood.Network{Mode: fumehood.NetworkBridge}, Ports: []fumehood.Port{{Container: 8000}, {Container: 8001}, {Container: 8000}},
	})
	if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-m", "http.server", "8000"}, Dir: "/etc"}); err != nil {
		t.Fatal(err)
	}
	conn, err := sb.Connection(t.Context())
	if err != nil || len(conn.Ports) != 3 || conn.Ports[0].Host == conn.Ports[1].Host {
		t.Fatalf("got %+v, %v", conn.Ports, err)
	}
	get := func(address string, port int) string {
		res, err := http.Get(fmt.Sprintf("http://%s/debian_version", net.JoinHostPort(address, fmt.Sprint(port)))) //nolint:noctx // a test's own server
		if err != nil {
			return ""
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return string(text)
	}
	for i, asked := range []int{8000, 8001, 8000} {
		if got := conn.Ports[i]; got.Container != asked || got.Host == 0 {
			t.Fatalf("port %d is %+v", asked, got)
		}
		if asked == 8000 {
			conformance.Eventually(t, "the server answers", func() bool { return get("127.0.0.1", conn.Ports[i].Host) != "" })
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		ip := a.(*net.IPNet).IP
		if ip.To4() == nil || ip.IsLoopback() {
			continue
		}
		if got := get(ip.String(), conn.Ports[0].Host); got != "" {
			t.Errorf("also answers at %s: %q", ip, got)
		}
	}
}

func TestConnection_user(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox, User: "1000:1000"})
	for user, want := range map[string]string{"": "1000:1000", "nobody": "nobody", "0:0": "0:0"} {
		conn, err := sb.As(user).Connection(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(conn.Shell, " "); got != "docker exec -it --user "+want+" "+conn.Container+" sh -l" {
			t.Errorf("as %q it says %q", user, got)
		}
	}
}

func TestLimits_pidsTooLow(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: fumehood.MinPIDs - 1}})
	conformance.WantError(t, err, fumehood.ErrConfig)
	sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: fumehood.MinPIDs}})
	if got := sh(t, sb, "echo ok"); got != "ok" {
		t.Errorf("got %q", got)
	}
}
