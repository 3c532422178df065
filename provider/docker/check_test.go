package docker_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider/docker"
)

const threeServices = `
services:
  default:
    image: fumehood-test/busybox
    command: sleep infinity
    depends_on: {once: {condition: service_completed_successfully}}
  db:
    image: fumehood-test/busybox
    command: sleep 1000
  once:
    image: fumehood-test/busybox
    command: "true"
`

func TestSandbox_Check(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts docker.Options
		spec fumehood.Spec
		ends string // the service that ends
	}{
		"an image":                       {docker.Options{}, fumehood.Spec{Image: "fumehood-test/busybox"}, "default"},
		"an image, with nothing of ours": {docker.Options{Transport: docker.TransportEngine}, fumehood.Spec{Image: "fumehood-test/busybox"}, "default"},
		"another service of a project":   {docker.Options{}, fumehood.Spec{Compose: project(t, threeServices)}, "db"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := start(t, newProvider(t, c.opts), c.spec)
			if err := sb.Check(t.Context()); err != nil {
				t.Errorf("right after its start: %v", err)
			}
			svc, err := sb.Lookup(c.ends)
			if err != nil {
				t.Fatal(err)
			}
			container := svc.ServiceInfo().Container
			if err := engineOf(t).StopContainer(t.Context(), container); err != nil {
				t.Fatal(err)
			}
			err = sb.Check(t.Context())
			if !errors.Is(err, fumehood.ErrUnavailable) || !strings.HasPrefix(err.Error(), "check sandbox") {
				t.Errorf("got %v", err)
			}
			if c.spec.Compose != nil && !strings.Contains(err.Error(), container+" has ended with code ") {
				t.Errorf("got %v", err)
			}
			if left := objectsOf(t, sb.Info().Name); len(left) == 0 || left[0].Kind != engine.Container {
				t.Errorf("got %v", left) // a check changes nothing
			}
		})
	}
}

func TestProvider_Machine(t *testing.T) {
	t.Parallel()
	m, err := newProvider(t, docker.Options{}).Machine(t.Context())
	if err != nil || m.Memory < 1<<28 || m.CPUs < 1 || m.CPUs < runtime.NumCPU() {
		t.Errorf("%+v, %v", m, err)
	}
}
