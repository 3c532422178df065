package docker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/dockertest"
	"github.com/lazaret/lazaret/provider/docker"
)

// The guest sees /proc and ends what takes too long; the Engine does neither. So it shows who has done what was asked.
func TestADirectServiceHasNoHelpFromTheSandbox(t *testing.T) {
	p := dockertest.Provider(t, docker.Options{})
	sb, err := p.Start(t.Context(), lazaret.Spec{Image: "lazaret-test/busybox"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.ReadFile(t.Context(), "/proc/version"); err != nil {
		t.Error(err)
	}
	for name, direct := range map[string]*lazaret.Service{"the service": sb.Direct(), "as another user": sb.As("nobody").Direct(), "another user of it": sb.Direct().As("nobody")} {
		t.Run(name, func(t *testing.T) {
			if _, err := direct.ReadFile(t.Context(), "/proc/version"); !errors.Is(err, lazaret.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			if err := direct.WriteFile(t.Context(), "/tmp/direct", []byte("x"), lazaret.WriteOptions{}); err != nil {
				t.Error(err)
			}
			if got, err := sb.ReadFile(t.Context(), "/tmp/direct"); err != nil || string(got) != "x" {
				t.Errorf("got %q, %v", got, err)
			}
			res, err := direct.Exec(t.Context(), lazaret.Cmd{Args: []string{"sleep", "30"}, Wall: time.Second})
			if err != nil || res.Outcome != lazaret.TimedOut || !res.Unkilled {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}
