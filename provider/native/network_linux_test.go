//go:build amd64 || arm64

package native

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/hostnet"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/test/tier"
)

func TestProhibited(t *testing.T) {
	route := func(dst string, local, direct bool, device int) hostnet.Route {
		return hostnet.Route{Dst: netip.MustParsePrefix(dst), Local: local, Direct: direct, Device: device}
	}
	always := prohibitedNets(nil)
	for name, c := range map[string]struct {
		routes []hostnet.Route
		want   []string
	}{
		"a host": {
			[]hostnet.Route{
				route("0.0.0.0/0", false, false, 2), route("192.0.2.0/24", false, true, 2), route("192.0.2.5/32", true, false, 2),
				route("172.17.0.0/16", false, true, 3), route("172.17.0.1/32", true, false, 3), route("198.51.100.0/24", false, false, 2),
				route("::/0", false, false, 2), route("2001:db8::1/128", true, false, 2),
			},
			[]string{"172.17.0.0/16", "172.17.0.1/32", "192.0.2.5/32"},
		},
		"a route twice":           {[]hostnet.Route{route("172.17.0.0/16", false, true, 3), route("172.17.0.0/16", false, true, 4)}, []string{"172.17.0.0/16"}},
		"default of a tunnel":     {[]hostnet.Route{route("0.0.0.0/0", false, true, 7), route("192.0.2.0/24", false, true, 7)}, nil},
		"no default route":        {[]hostnet.Route{route("192.0.2.0/24", false, true, 2)}, []string{"192.0.2.0/24"}},
		"no default of this host": {[]hostnet.Route{route("0.0.0.0/0", true, false, 2), route("192.0.2.0/24", false, true, 2)}, []string{"192.0.2.0/24"}},
		"the sandbox's subnet":    {[]hostnet.Route{route("10.201.0.0/28", false, true, 3), route("10.201.0.3/32", true, false, 3), route("10.200.0.0/15", false, true, 3)}, []string{"10.200.0.0/15"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := slices.Clone(always)
			for _, text := range c.want {
				want = append(want, netip.MustParsePrefix(text))
			}
			slices.SortFunc(want, netip.Prefix.Compare)
			if got := prohibitedNets(c.routes); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	for _, want := range []string{"127.0.0.1", "169.254.169.254", "0.0.0.1", "224.0.0.251", "255.255.255.255", "10.201.3.4", "172.29.0.1"} {
		if !slices.ContainsFunc(always, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(want)) }) {
			t.Errorf("%s is not among %v", want, always)
		}
	}
}

// A process that another goroutine was starting had the interface open for a moment, and the helper failed with EBUSY.
func TestMakeInterface_free(t *testing.T) {
	t.Parallel()
	if err := unix.Access(tunnels, unix.R_OK|unix.W_OK); err != nil || rootless() {
		tier.Missing(t, tier.Quick, fmt.Errorf("a network interface needs root and %s: %w", tunnels, err))
	}
	done, starter := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-done:
				close(starter)
				return
			default:
			}
			if err := exec.CommandContext(t.Context(), "/bin/true").Run(); err != nil {
				starter <- err
				return
			}
		}
	}()
	for range 300 {
		if err := setup.InThread(takeInterface); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	if err := <-starter; err != nil {
		t.Error(err)
	}
}

// takeInterface makes the interface in a network namespace of its own, and opens it as the helper does.
func takeInterface() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := makeInterface(namespace); err != nil {
		return err
	}
	fd, err := openInterface()
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
