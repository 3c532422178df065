package compose

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestChecking_Pool(t *testing.T) {
	for _, tt := range []struct{ pool, says, key string }{
		{pool: "subnet: 10.5.0.0/24, gateway: 10.5.0.1, ip_range: 10.5.0.128/25, aux_addresses: {a: 10.5.0.7}"},
		{pool: "subnet: 172.31.255.0/24"},
		{pool: "subnet: 192.168.0.0/16"},
		{pool: "subnet: fd00:1::/64, gateway: 'fd00:1::1'"},
		{pool: "gateway: 10.0.0.1"}, // we choose the subnet
		{"subnet: 8.8.8.0/24", "this is not safe: it is not private", "subnet"},
		{"subnet: 0.0.0.0/0", "not private", "subnet"},
		{"subnet: 169.254.169.0/24", "not private", "subnet"},
		{"subnet: 127.0.0.0/8", "not private", "subnet"},
		{"subnet: 100.64.0.0/16", "not private", "subnet"},
		{"subnet: 10.0.0.0/7", "not private", "subnet"},
		{"subnet: 172.32.0.0/24", "not private", "subnet"},
		{"subnet: 10.0.0.0/8", "others need", "subnet"},
		{"subnet: 'fd00::/16'", "others need", "subnet"},
		{"subnet: 'fe80::/64'", "not private", "subnet"},
		{"subnet: '2001:db8::/64'", "not private", "subnet"},
		{"subnet: '::ffff:10.0.0.0/120'", "not private", "subnet"},
		{"subnet: 10.5.0.0", "not a subnet", "subnet"},
		{"subnet: 10.5.0.0/24, gateway: 10.5.1.1", "not an address of the subnet 10.5.0.0/24", "gateway"},
		{"subnet: 10.5.0.0/24, gateway: x", "not an address", "gateway"},
		{"subnet: 10.5.0.0/24, ip_range: 10.5.0.0/23", "not a part of the subnet", "ip_range"},
		{"subnet: 10.5.0.0/24, ip_range: 10.6.0.0/25", "not a part of the subnet", "ip_range"},
		{"subnet: 10.5.0.0/24, aux_addresses: {a: 169.254.169.254}", "not an address of the subnet", "aux_addresses.a"},
	} {
		t.Run(tt.pool, func(t *testing.T) {
			file := "services: {a: {image: i, networks: [n]}}\nnetworks:\n  n: {ipam: {config: [{" + tt.pool + "}]}}\n"
			_, err := load(t, file, fumehood.Compose{})
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "compose.yaml:3: networks.n.ipam.config.0."+tt.key+": ") {
				t.Errorf("got %v", err)
			}
			p, err := load(t, file, fumehood.Compose{AllowUnsafe: true})
			if (strings.Contains(tt.says, "private") || strings.Contains(tt.says, "others")) != (err == nil) {
				t.Errorf("allowed: %v", err)
			}
			if err == nil && (len(p.notes) != 1 || !p.notes[0].Unsafe) {
				t.Errorf("the notes are %v", p.notes)
			}
		})
	}
}

func TestProject_CheckRoutes(t *testing.T) {
	for _, tt := range []struct {
		subnet, route string
		safe          bool
	}{
		{"10.5.0.0/24", "10.5.0.0/24", false},
		{"10.5.0.0/24", "10.0.0.0/8", false},    // route of a private network
		{"10.5.0.0/16", "10.5.77.9/32", false},  // an address of the host
		{"10.5.0.9/24", "10.5.0.128/25", false}, // with bits beyond its length
		{"fd00:1::/64", "fd00::/8", false},
		{"10.5.0.0/24", "10.6.0.0/16", true},
		{"10.5.0.0/24", "0.0.0.0/0", true},
		{"10.5.0.0/24", "0.0.0.0/1", true}, // half of a default route
		{"fd00:1::/64", "::/0", true},
		{"fd00:1::/64", "2000::/3", true},
		{"10.5.0.0/24", "::/0", true},
	} {
		t.Run(tt.subnet+" "+tt.route, func(t *testing.T) {
			p, err := load(t, "services: {a: {image: i, networks: [n]}}\nnetworks: {n: {ipam: {config: [{subnet: '"+tt.subnet+"'}]}}}\n", fumehood.Compose{})
			if err != nil || !p.HasSubnets() {
				t.Fatal(err)
			}
			routes := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix(tt.route)}
			err = p.CheckRoutes(routes, false)
			if tt.safe != (err == nil) || err != nil && (!errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), tt.route)) {
				t.Errorf("got %v", err)
			}
			if err := p.CheckRoutes(routes, true); err != nil || (len(p.notes) == 0) != tt.safe {
				t.Errorf("allowed: %v, %v", err, p.notes)
			}
		})
	}
}
