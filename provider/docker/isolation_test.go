package docker_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider/docker"
)

// reach connects to addresses, given as arguments, and prints as JSON which of them answer. GATEWAY is the gateway of
// the container's default route. Without one, it is the first address of the network that no service has, because
// Engine 28 and later give the gateway's address to a service if the bridge has none. NAME:x is only resolved.
const reach = `
import concurrent.futures, json, socket, sys

def address(field, add=0):
    return socket.inet_ntoa((int.from_bytes(bytes.fromhex(field), "little") + add).to_bytes(4, "big"))

def gateway():
    routes = [line.split() for line in open("/proc/net/route").read().splitlines()[1:]]
    for r in routes:
        if r[1] == "00000000": return address(r[2])
    if not routes: return "192.0.2.1"
    services = {socket.gethostbyname(name) for name in ("box", "web")}
    return next(a for a in (address(routes[0][1], i) for i in range(1, 14)) if a not in services)

def try_(target):
    try:
        if target.startswith("NAME:"):
            return bool(socket.getaddrinfo(target[5:], 80))
        host, port = target.rsplit(":", 1)
        if host == "GATEWAY": host = gateway()
        info = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        s = socket.socket(info[0], info[1])
        s.settimeout(3)
        s.connect(info[4])
        return True
    except ConnectionRefusedError:
        return True # somebody answers, and nobody should
    except OSError:
        return False

with concurrent.futures.ThreadPoolExecutor(32) as pool:
    print(json.dumps(dict(zip(sys.argv[1:], pool.map(try_, sys.argv[1:])))))
`

// reached runs reach in a service. A name server that does not answer within 3 s counts as not reached, like an
// address.
func reached(t *testing.T, sb fumehood.Sandbox, service string, targets []string) map[string]bool {
	t.Helper()
	svc, err := sb.Lookup(service)
	if err != nil {
		t.Fatal(err)
	}
	res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: append([]string{"python3", "-c", reach}, targets...), Timeout: time.Minute, Env: map[string]string{"RES_OPTIONS": "timeout:3 attempts:1"}})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%v, %+v: %s", err, res, res.Stderr.Text())
	}
	got := map[string]bool{}
	if err := json.Unmarshal([]byte(res.Stdout.Text()), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// unreachable reports whether at least one of three more attempts does not reach the target. While a network is
// created, Engine 20.10 does not isolate bridges from each other (see SECURITY.md), and other tests create networks all
// the time. With later Engines there are no further attempts.
func unreachable(t *testing.T, sb fumehood.Sandbox, service, target string) bool {
	t.Helper()
	server, err := engineOf(t).Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !engine.VersionLess(server.Version, "23") {
		return false
	}
	for range 3 {
		if !reached(t, sb, service, []string{target})[target] {
			return true
		}
	}
	return false
}

// hostAddresses returns this machine's addresses except loopback ones. Link-local ones are those that a container would
// reach over its own interface.
func hostAddresses(t *testing.T) []string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		switch {
		case ip.IsLoopback():
		case ip.IsLinkLocalUnicast() && ip.To4() == nil:
			all = append(all, "["+ip.String()+"%eth0]")
		case ip.To4() == nil:
			all = append(all, "["+ip.String()+"]")
		default:
			all = append(all, ip.String())
		}
	}
	return all
}

// isolated is a project whose service web must not be reachable from other projects. So the sibling needs only web.
// Whether web listens does not matter, because a client whose connection is refused has reached it.
const (
	isolated = `
services:
  web: {image: fumehood-test/python, command: [python3, -m, http.server, "8000"]}
` + isolatedOthers
	isolatedOthers = `
  box: {image: fumehood-test/python, command: sleep infinity, x-default: true, depends_on: [web]}
  beside: {image: fumehood-test/python, command: sleep infinity, network_mode: "service:web"}
`
)

func TestIsolation_egress(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", ":0") //nolint:gosec // on all interfaces: these are what the sandboxes try to reach
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := newProvider(t, docker.Options{})
	for _, tt := range []struct {
		name, file string
		services   []string
		outside    bool // the host is reachable, by its addresses and as the gateway
	}{
		{"internal networks", isolated, []string{"box", "beside"}, false},
		{"egress to the internet", isolated + "x-fumehood: {egress: internet}\n", []string{"box", "beside"}, true},
		{
			"internal in spite of egress", isolated + "networks: {default: {internal: true}}\nx-fumehood: {egress: internet}\n",
			[]string{"box", "beside"},
			false,
		},
		{
			"a subnet of the project's own", isolated + "networks: {default: {ipam: {config: [{subnet: 10.219.78.0/24, gateway: 10.219.78.1}]}}}\n",
			[]string{"box"},
			false,
		},
		{
			"no network", strings.Replace(isolated, "x-default: true", "x-default: true, network_mode: none", 1),
			[]string{"box"},
			false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sb := start(t, p, fumehood.Spec{Compose: project(t, tt.file)})
			sibling := start(t, p, fumehood.Spec{Compose: project(t, strings.NewReplacer(isolatedOthers, "\n", "10.219.78.", "10.219.79.").Replace(tt.file))})
			web, err := sibling.Lookup("web")
			if err != nil {
				t.Fatal(err)
			}
			res, err := web.Exec(t.Context(), fumehood.Cmd{Args: []string{"hostname", "-i"}})
			if err != nil {
				t.Fatal(err)
			}
			address := strings.TrimSpace(res.Stdout.Text()) + ":8000"
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			host := []string{"GATEWAY:" + port}
			for _, a := range hostAddresses(t) {
				host = append(host, a+":"+port)
			}
			closed := []string{
				"169.254.169.254:80", "[fd00:ec2::254]:80", "10.255.255.53:53", address, web.ServiceInfo().Container + ":8000",
				"NAME:example.com", "NAME:" + web.ServiceInfo().Container,
			}
			for _, service := range tt.services {
				got := reached(t, sb, service, append(host, closed...))
				for i, target := range append(host, closed...) {
					switch {
					case i == 0 && got[target] != tt.outside:
						t.Errorf("%s: the gateway is reached: %v", service, got[target])
					case tt.outside && (i < len(host) || !strings.Contains(target, sibling.Info().Name) && target != address):
					case i > 0 && got[target] && tt.outside && unreachable(t, sb, service, target):
						t.Logf("%s reached %s for a moment", service, target)
					case i > 0 && got[target]:
						t.Errorf("%s reaches %s", service, target)
					}
				}
			}
			if tt.name != "no network" {
				if got := reached(t, sb, "box", []string{"web:8000", "NAME:web"}); !got["web:8000"] || !got["NAME:web"] {
					t.Errorf("services do not reach each other: %v", got)
				}
			}
			if got := reached(t, sibling, "web", []string{address}); !got[address] {
				t.Error("the sibling does not listen at the expected address")
			}
			if got := sh(t, sb, "grep -v ' lo$' /proc/net/if_inet6 | wc -l"); got != "0" {
				t.Errorf("the sandbox has %s IPv6 addresses", got)
			}
		})
	}
}
