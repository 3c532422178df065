package local_test

import (
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
)

// The exceptions describe what the local provider does instead of the promises that it cannot keep.

var noUsers = conformance.Exception{
	Reason: "commands run as the user who runs fumehood; ErrUnsupported",
	Check: conformance.Refuses(func(c *conformance.Case) fumehood.Cmd {
		cmd := c.Probe("append", c.Path("ran"), "x")
		cmd.User = "0:0"
		return cmd
	}),
}

var noOthersFiles = conformance.Exception{
	Reason: "all is done as the user who runs fumehood; ErrUnsupported",
	Check: func(t *testing.T, c *conformance.Case) {
		as := c.Sandbox.As("0:0")
		_, err := as.Exec(t.Context(), c.Probe("append", c.Path("ran"), "x"))
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.Stat(t.Context(), c.Dir)
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.ReadFile(t.Context(), c.Path("here"), fumehood.ReadOptions{})
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.List(t.Context(), c.Dir)
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.Download(t.Context(), c.Dir)
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		conformance.WantError(t, as.Upload(t.Context(), c.Dir, nil), fumehood.ErrUnsupported)
		conformance.WantError(t, as.WriteFile(t.Context(), c.Path("ran"), nil, fumehood.WriteOptions{}), fumehood.ErrUnsupported)
		conformance.WantError(t, as.Mkdir(t.Context(), c.Path("ran"), fumehood.MkdirOptions{}), fumehood.ErrUnsupported)
		_, err = c.Sandbox.Stat(t.Context(), c.Path("ran"))
		conformance.WantError(t, err, fumehood.ErrNotFound)
	},
}

var hostFiles = conformance.Exception{
	Reason: "paths are the host's own, so links lead to the host's files",
	Check: func(t *testing.T, c *conformance.Case) {
		for link, secret := range c.HostLinks(t) {
			if got := c.Read(t, link); got != secret {
				t.Errorf("%s: %q", link, got)
			}
		}
	},
}
