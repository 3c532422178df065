package docker_test

import (
	"errors"
	"os"
	"testing"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/provider/docker"
)

// The images that `make images` makes.
const (
	debian  = "lazaret-test/python"
	busybox = "lazaret-test/busybox"
	static  = "lazaret-test/static"
)

// newProvider connects to the daemon, and skips the test where there is none, unless
// LAZARET_REQUIRE_DOCKER says that there must be.
func newProvider(t *testing.T, opts docker.Options) *docker.Provider {
	t.Helper()
	p, err := docker.New(t.Context(), opts)
	if err != nil {
		if os.Getenv("LAZARET_REQUIRE_DOCKER") == "" {
			t.Skipf("no Docker: %v", err)
		}
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

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

func TestAFileThatDoesNotFitIsALimit(t *testing.T) {
	sb := start(t, newProvider(t, docker.Options{}), lazaret.Spec{Image: "lazaret-test/busybox"})
	const shm = 64 << 20 // what Docker gives /dev/shm
	err := sb.WriteFile(t.Context(), "/dev/shm/big", make([]byte, shm+16<<20), lazaret.WriteOptions{})
	if !errors.Is(err, lazaret.ErrLimit) {
		t.Errorf("got %v, want an ErrLimit", err)
	}
	if err := sb.WriteFile(t.Context(), "/tmp/small", []byte("fits"), lazaret.WriteOptions{}); err != nil {
		t.Error("the next one:", err)
	}
}
