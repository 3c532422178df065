package lazaret

import (
	"errors"
	"strings"
	"testing"
)

func TestASpecsPortsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want string // part of the error; empty for none
	}{
		"none":                     {Spec{}, ""},
		"on a bridge":              {Spec{Network: "bridge", Ports: []Port{{8080, 80}, {0, 80}, {0, 443}}}, ""},
		"on a named network":       {Spec{Network: "mine", Ports: []Port{{65535, 65535}}}, ""},
		"without a network":        {Spec{Ports: []Port{{8080, 80}}}, "set the network to bridge"},
		"on none":                  {Spec{Network: "none", Ports: []Port{{8080, 80}}}, "set the network to bridge"},
		"on the host's network":    {Spec{Network: "host", Ports: []Port{{8080, 80}}}, "the host's already"},
		"of no container port":     {Spec{Network: "bridge", Ports: []Port{{8080, 0}}}, "no port 8080 or 0"},
		"that is too large":        {Spec{Network: "bridge", Ports: []Port{{65536, 80}}}, "no port 65536"},
		"that is negative":         {Spec{Network: "bridge", Ports: []Port{{-1, 80}}}, "no port -1"},
		"of the host, taken twice": {Spec{Network: "bridge", Ports: []Port{{8080, 80}, {8080, 81}}}, "8080 of the host is published twice"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Validate()
			var e *Error
			switch {
			case c.want == "":
				if err != nil {
					t.Error(err)
				}
			case !errors.Is(err, ErrConfig) || !errors.As(err, &e) || !strings.Contains(e.Error()+e.Hint, c.want):
				t.Errorf("got %v", err)
			}
		})
	}
}
