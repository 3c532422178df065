package hostnet

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood/test/tier"
)

// A separate process has the routes, in its own network namespace.
func TestRoutes(t *testing.T) {
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.CI, errors.New("a network namespace takes root"))
	}
	tier.Program(t, tier.CI, "ip")
	t.Parallel()
	const inside = "FUMEHOOD_TEST_NETWORK_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		tier.Again(t, cmd)
		return
	}
	for _, line := range []string{
		"link set dev lo up", "link add name a type veth peer name b", "link set dev a up", "address add 192.0.2.1/24 dev a",
		"route add default via 192.0.2.2", "route add 198.51.100.0/24 via 192.0.2.2 table 7", "route add prohibit 203.0.113.0/24",
		"route add 203.0.113.9 dev a", "route add 203.0.113.128/25 via inet6 fe80::1 dev a",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil { //nolint:gosec // fixed
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	routes, err := Routes()
	if err != nil {
		t.Fatal(err)
	}
	var device int
	for _, r := range routes {
		if r.Dst == netip.MustParsePrefix("0.0.0.0/0") {
			device = r.Device
		}
	}
	if device < 2 {
		t.Fatalf("the default route has device %d", device)
	}
	for dst, want := range map[string]Route{
		"0.0.0.0/0":        {Device: device},
		"127.0.0.1/32":     {Local: true, Device: 1},
		"192.0.2.0/24":     {Direct: true, Device: device},
		"192.0.2.1/32":     {Local: true, Device: device},
		"198.51.100.0/24":  {Device: device},
		"203.0.113.0/24":   {},
		"203.0.113.9/32":   {Direct: true, Device: device},
		"203.0.113.128/25": {Device: device},
		"::1/128":          {Local: true, Device: 1},
	} {
		want.Dst = netip.MustParsePrefix(dst)
		if !slices.Contains(routes, want) {
			t.Errorf("%+v is not among %+v", want, routes)
		}
	}
}

func TestParse(t *testing.T) {
	if got, err := parse(bytes.Repeat([]byte{0xff}, 32)); err == nil {
		t.Errorf("got %v", got)
	}
}
