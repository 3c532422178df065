package spec

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestEffectiveNetworkMode(t *testing.T) {
	for _, c := range []struct {
		mode, goos, want string
		warns            bool
	}{
		{"", "linux", "none", false},
		{"none", "darwin", "none", false},
		{"bridge", "linux", "bridge", false},
		{"bridge", "windows", "bridge", false},
		{"host", "linux", "host", false},
		{"host", "darwin", "bridge", true},
		{"host", "windows", "bridge", true},
		{"my_net", "darwin", "my_net", false},
	} {
		if got, warning := EffectiveNetworkMode(c.mode, c.goos); got != c.want || (warning != "") != c.warns || c.warns && !strings.Contains(warning, c.goos) {
			t.Errorf("%q on %s: got %q, %q; want %q", c.mode, c.goos, got, warning, c.want)
		}
	}
}

func TestEffectiveAddress(t *testing.T) {
	for _, c := range []struct{ address, mode, want string }{
		{"127.0.0.1", "bridge", "0.0.0.0"},
		{"::1", "bridge", "0.0.0.0"},
		{"localhost", "bridge", "0.0.0.0"},
		{"LocalHost", "bridge", "0.0.0.0"},
		{"0.0.0.0", "bridge", "0.0.0.0"},
		{"10.0.0.1", "bridge", "10.0.0.1"},
		{"", "bridge", ""},
		{"127.0.0.1", "host", "127.0.0.1"},
		{"localhost", "none", "localhost"},
		{"::1", "", "::1"},
		{"::1", "my_net", "::1"},
	} {
		if got := EffectiveAddress(c.address, c.mode); got != c.want {
			t.Errorf("%q under %q: got %q, want %q", c.address, c.mode, got, c.want)
		}
	}
}

func TestMergePorts(t *testing.T) {
	for _, c := range []struct {
		says              string
		mode              string
		spec, spawn, want Ports
		note, fails       string
	}{
		{says: "none", mode: "bridge"},
		{says: "none, without a network", mode: "none"},
		{says: "the spec's", mode: "bridge", spec: Ports{{8080, 80}, {0, 81}, {0, 82}}, want: Ports{{8080, 80}, {0, 81}, {0, 82}}},
		{says: "both", mode: "my_net", spec: Ports{{8080, 80}}, spawn: Ports{{0, 81}}, want: Ports{{8080, 80}, {0, 81}}},
		{says: "the same container port", mode: "bridge", spec: Ports{{8080, 80}, {9000, 90}}, spawn: Ports{{0, 80}}, want: Ports{{9000, 90}, {0, 80}}},
		{says: "the same host port", mode: "bridge", spec: Ports{{8080, 80}}, spawn: Ports{{8080, 81}}, want: Ports{{8080, 81}}},
		{says: "host port 0 is no host port", mode: "bridge", spec: Ports{{0, 80}}, spawn: Ports{{0, 81}}, want: Ports{{0, 80}, {0, 81}}},
		{says: "one container port twice", mode: "bridge", spec: Ports{{8080, 80}, {8081, 80}}, want: Ports{{8080, 80}, {8081, 80}}},
		{says: "the host's network", mode: "host", spec: Ports{{8080, 80}}, note: "with network: host the ports are ignored"},
		{says: "the host's network, no ports", mode: "host"},
		{says: "no network", mode: "none", spawn: Ports{{8080, 80}}, fails: "network: bridge"},
		{says: "unset network", spec: Ports{{8080, 80}}, fails: "network: bridge"},
		{says: "container port 0", mode: "bridge", spawn: Ports{{8080, 0}}, fails: "container port 0"},
		{says: "a host port for two", mode: "bridge", spawn: Ports{{8080, 80}, {8080, 81}}, fails: "host port 8080 is published for two"},
	} {
		spec := append(Ports(nil), c.spec...)
		ports, note, err := MergePorts(c.mode, c.spec, c.spawn)
		switch {
		case c.fails != "":
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.fails) || ports != nil {
				t.Errorf("%s: got %v, %v; want an ErrConfig with %q", c.says, ports, err, c.fails)
			}
		case err != nil || !reflect.DeepEqual(ports, c.want) || (note != "") != (c.note != "") || !strings.Contains(note, c.note):
			t.Errorf("%s: got %v, %q, %v; want %v, %q", c.says, ports, note, err, c.want, c.note)
		}
		if !reflect.DeepEqual(c.spec, spec) {
			t.Errorf("%s: the spec's ports have changed to %v", c.says, c.spec)
		}
	}
}
