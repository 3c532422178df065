package docker_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// The images that `make images` builds.
const (
	debian  = "fumehood-test/python"
	busybox = "fumehood-test/busybox"
	static  = "fumehood-test/static"
)

var newProvider = dockertest.Provider

// connected is the tests' own connection to the daemon's API. It lasts as long as the process.
var connected = sync.OnceValues(func() (*composesdk.SDK, error) {
	return composesdk.Connect(context.Background(), composesdk.Options{})
})

// engineOf returns the tests' own connection to the daemon's API.
func engineOf(t testing.TB) *engine.Client {
	t.Helper()
	tier.NeedDocker(t)
	c, err := connected()
	if err != nil {
		t.Fatal(err)
	}
	return c.Engine
}

func start(t *testing.T, p *docker.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	tier.NeedDocker(t) // a promise of a column comes here first
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

var warming sync.Once

// warm makes sure that the guest volume exists, so that a start creates only the sandbox's own objects.
func warm(t *testing.T) {
	t.Helper()
	warming.Do(func() { start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox}) })
}

func TestWriteFile_diskFull(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: "fumehood-test/busybox"})
	const shm = 64 << 20 // the size of /dev/shm in Docker
	err := sb.WriteFile(t.Context(), "/dev/shm/big", make([]byte, shm+16<<20), fumehood.WriteOptions{})
	if !errors.Is(err, fumehood.ErrLimit) {
		t.Errorf("got %v, want an ErrLimit", err)
	}
	if err := sb.WriteFile(t.Context(), "/tmp/small", []byte("fits"), fumehood.WriteOptions{}); err != nil {
		t.Error("the next one:", err)
	}
}

// A command starts in its service's directory also if its user may not enter it, as with docker run.
func TestProvider_Start_directoryOfRoot(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]fumehood.Spec{
		"image":   {Image: "fumehood-test/python", User: "1000", Dir: "/root"},
		"compose": {Compose: &fumehood.Compose{Content: `services: {default: {image: fumehood-test/python, user: "1000", working_dir: /root, command: sleep infinity}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := start(t, newProvider(t, docker.Options{}), spec)
			conformance.WantEntered(t, sb, "/root")
			_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"pwd"}, Dir: "/var/cache/ldconfig"})
			conformance.WantError(t, err, fumehood.ErrDirNotFound)
		})
	}
}
