// Package dockertest has helpers for tests that use a Docker daemon.
package dockertest

import (
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// Provider connects to the daemon until the end of the test. Without a daemon the test skips, or fails if
// FUMEHOOD_TIER is set. The provider does not sweep, because the processes of other tests own the objects that it
// would remove.
func Provider(t testing.TB, opts docker.Options) *docker.Provider {
	t.Helper()
	tier.NeedDocker(t)
	opts.NoSweep = true
	p, err := docker.New(t.Context(), opts)
	if err != nil {
		tier.Missing(t, tier.Quick, err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Socket returns the path of the daemon's unix socket. If it has none, the test is skipped.
func Socket(t testing.TB, e *engine.Client) string {
	t.Helper()
	path, ok := strings.CutPrefix(e.Endpoint(), "unix://")
	if !ok {
		t.Skip("the daemon is not on a unix socket")
	}
	return path
}

// Engine connects to the daemon's API until the end of the test.
func Engine(t testing.TB) *engine.Client {
	t.Helper()
	tier.NeedDocker(t)
	c, err := composesdk.Connect(t.Context(), composesdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.Engine
}
