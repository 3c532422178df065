package docker_test

import (
	"errors"
	"testing"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/provider/docker"
)

func TestOnlyAKeptSandboxIsStoppedAndLeft(t *testing.T) {
	p := newProvider(t, docker.Options{})
	sb := start(t, p, lazaret.Spec{Image: debian})
	if err := sb.Stop(t.Context()); !errors.Is(err, lazaret.ErrConfig) {
		t.Errorf("one that is not kept: %v", err)
	}
	if _, err := sb.Exec(t.Context(), lazaret.Cmd{Args: []string{"true"}}); err != nil {
		t.Errorf("it was stopped all the same: %v", err)
	}
	kept := start(t, p, lazaret.Spec{Image: debian, Keep: true})
	name := kept.Info().Name
	for range 2 {
		if err := kept.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := kept.Exec(t.Context(), lazaret.Cmd{Args: []string{"true"}}); !errors.Is(err, lazaret.ErrUnavailable) {
		t.Errorf("a command after Stop: %v", err)
	}
	if err := kept.Close(t.Context()); err != nil {
		t.Error(err)
	}
	found, err := p.Cleanup(t.Context(), lazaret.CleanupOptions{Names: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range found {
		if l.Sandbox == name && !l.Removed {
			t.Errorf("%+v", l)
		}
	}
}
