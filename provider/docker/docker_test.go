package docker_test

import (
	"errors"
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
