package docker

import (
	"errors"
	"slices"
	"testing"

	"github.com/lazaret/lazaret"
)

func TestEachPortThatWasAskedForIsFound(t *testing.T) {
	port := func(host, container int) lazaret.Port {
		return lazaret.Port{Host: host, Container: container, Protocol: lazaret.ProtocolTCP, Address: "127.0.0.1"}
	}
	published := []lazaret.Port{port(4444, 80), port(32768, 80), port(32769, 90), {Host: 32770, Container: 80, Protocol: lazaret.ProtocolUDP}}
	for name, c := range map[string]struct {
		asked []lazaret.Port
		hosts []int // nil where the Engine lacks one
	}{
		"chosen by the Engine before fixed": {[]lazaret.Port{{Container: 80}, {Host: 4444, Container: 80}}, []int{32768, 4444}},
		"fixed before chosen by the Engine": {[]lazaret.Port{{Host: 4444, Container: 80}, {Container: 80}}, []int{4444, 32768}},
		"several at one":                    {[]lazaret.Port{{Host: 4444, Container: 80}, {Container: 80}, {Container: 90}, {Container: 80}}, []int{4444, 32768, 32769, 32768}},
		"each of its own":                   {[]lazaret.Port{{Container: 80}, {Container: 80}}, []int{4444, 32768}},
		"of another protocol":               {[]lazaret.Port{{Container: 80, Protocol: lazaret.ProtocolUDP}}, []int{32770}},
		"not published":                     {[]lazaret.Port{{Container: 80}, {Host: 5555, Container: 80}}, nil},
		"not published at all":              {[]lazaret.Port{{Container: 91}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := publishedPorts(c.asked, published)
			if c.hosts == nil {
				if !errors.Is(err, lazaret.ErrInfrastructure) {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			var hosts []int
			for _, p := range got {
				hosts = append(hosts, p.Host)
			}
			if err != nil || !slices.Equal(hosts, c.hosts) {
				t.Errorf("got %v, %v, want %v", hosts, err, c.hosts)
			}
		})
	}
}
