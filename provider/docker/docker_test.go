package docker_test

import (
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/dockertest"
	"github.com/fumehood/fumehood/provider/docker"
)

// The images that `make images` makes.
const (
	debian  = "fumehood-test/python"
	busybox = "fumehood-test/busybox"
	static  = "fumehood-test/static"
)

var (
	newProvider = dockertest.Provider
	engineOf    = dockertest.Engine
)

func start(t *testing.T, p *docker.Provider, spec fumehood.Spec) *fumehood.Sandbox {
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
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: "fumehood-test/busybox"})
	const shm = 64 << 20 // what Docker gives /dev/shm
	err := sb.WriteFile(t.Context(), "/dev/shm/big", make([]byte, shm+16<<20), fumehood.WriteOptions{})
	if !errors.Is(err, fumehood.ErrLimit) {
		t.Errorf("got %v, want an ErrLimit", err)
	}
	if err := sb.WriteFile(t.Context(), "/tmp/small", []byte("fits"), fumehood.WriteOptions{}); err != nil {
		t.Error("the next one:", err)
	}
}
