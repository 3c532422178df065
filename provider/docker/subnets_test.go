package docker

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostnet"
)

func prefixes(text ...string) (all []netip.Prefix) {
	for _, s := range text {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func TestSubnets_sizes(t *testing.T) {
	var s subnets
	used := prefixes("10.201.0.0/17", "172.17.0.0/16")
	var all []netip.Prefix
	for range 200 {
		got, err := s.take([]int{5, 16, 17, 300}, used)
		if err != nil {
			t.Fatal(err)
		}
		for i, bits := range []int{28, 28, 27, 23} {
			if got[i].Bits() != bits || got[i] != got[i].Masked() {
				t.Fatalf("%d: got %v, want /%d", i, got[i], bits)
			}
			if overlapsAny(got[i], append(all, used...)) {
				t.Fatalf("%v overlaps", got[i])
			}
			all = append(all, got[i])
		}
		s.release(got[3:])
		all = all[:len(all)-1]
	}
}

func TestSubnets_nextPool(t *testing.T) {
	var s subnets
	got, err := s.take([]int{4}, prefixes("10.0.0.0/8"))
	if err != nil || !hostnet.Pools[1].Overlaps(got[0]) {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = s.take([]int{4}, prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
	if !errors.Is(err, fumehood.ErrLimit) {
		t.Errorf("got %v", err)
	}
}
