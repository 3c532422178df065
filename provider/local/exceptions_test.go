package local_test

import (
	"testing"

	"github.com/fumehood/fumehood/provider/conformance"
)

// The exceptions describe what the local provider does instead of the promises that it cannot keep.

var hostLinks = conformance.Exception{
	Reason: "paths are the host's; links reach host files",
	Check: func(t *testing.T, c *conformance.Case) {
		for link, secret := range c.HostLinks(t) {
			if got := c.Read(t, link); got != secret {
				t.Errorf("%s: %q", link, got)
			}
		}
	},
}
