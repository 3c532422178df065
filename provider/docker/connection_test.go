package docker

import (
	"errors"
	"slices"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestPublishedPorts(t *testing.T) {
	port := func(host, container int) fumehood.Port {
		return fumehood.Port{Host: host, Container: container, Protocol: fumehood.ProtocolTCP, Address: "127.0.0.1"}
	}
	published := []fumehood.Port{port(4444, 80), port(32768, 80), port(32769, 90), {Host: 32770, Container: 80, Protocol: fumehood.ProtocolUDP}}
	for name, c := range map[string]struct {
		asked []fumehood.Port
		hosts []int // nil if the Engine has not published one
	}{
		"chosen before fixed":  {[]fumehood.Port{{Container: 80}, {Host: 4444, Container: 80}}, []int{32768, 4444}},
		"fixed before chosen":  {[]fumehood.Port{{Host: 4444, Container: 80}, {Container: 80}}, []int{4444, 32768}},
		"several at one":       {[]fumehood.Port{{Host: 4444, Container: 80}, {Container: 80}, {Container: 90}, {Container: 80}}, []int{4444, 32768, 32769, 32768}},
		"each of its own":      {[]fumehood.Port{{Container: 80}, {Container: 80}}, []int{4444, 32768}},
		"of another protocol":  {[]fumehood.Port{{Container: 80, Protocol: fumehood.ProtocolUDP}}, []int{32770}},
		"not published":        {[]fumehood.Port{{Container: 80}, {Host: 5555, Container: 80}}, nil},
		"not published at all": {[]fumehood.Port{{Container: 91}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := publishedPorts(c.asked, published)
			if c.hosts == nil {
				if !errors.Is(err, fumehood.ErrInfrastructure) {
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
