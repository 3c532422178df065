package docker_test

import (
	"testing"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/dockertest"
	"github.com/lazaret/lazaret/provider/docker"
)

// The images that `make images` makes.
const (
	debian  = "lazaret-test/python"
	busybox = "lazaret-test/busybox"
	static  = "lazaret-test/static"
)

var (
	newProvider = dockertest.Provider
	engineOf    = dockertest.Engine
)

func start(t *testing.T, p *docker.Provider, spec lazaret.Spec) *lazaret.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return sb
}
