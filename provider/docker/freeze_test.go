package docker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/filetest"
)

func TestSandbox_Freeze(t *testing.T) {
	t.Parallel()
	d := newRawDaemon(t)
	dir := filetest.Lay(t, map[string]string{"compose.yaml": `
services:
  one: {image: fumehood-test/busybox, command: [sleep, infinity]}
  two: {image: fumehood-test/busybox, command: [sleep, infinity]}
`})
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: &fumehood.Compose{Files: []string{dir + "/compose.yaml"}}})
	arePaused := func(want bool) {
		t.Helper()
		for _, s := range sb.Info().Services {
			var c struct{ State struct{ Paused bool } }
			if d.ask("GET", "/containers/"+s.Container+"/json", nil, &c); c.State.Paused != want {
				t.Errorf("service %s: paused is %v", s.Name, c.State.Paused)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		thaw, err := sb.Freeze(ctx)
		if err != nil {
			t.Fatal(err)
		}
		arePaused(true)
		if err := thaw(ctx); err != nil {
			t.Error(err)
		}
		arePaused(false)
		if got := sh(t, sb, "echo on"); got != "on" {
			t.Errorf("got %q", got)
		}
	}

	// A container that was already paused stays paused, and a container that has exited is skipped.
	services := sb.Info().Services
	if is, err := engineOf(t).Pause(ctx, services[0].Container); err != nil || !is { // runc may need several tries under load
		t.Fatal(err)
	}
	d.ask("POST", "/containers/"+services[1].Container+"/kill", nil, nil)
	thaw, err := sb.Freeze(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := thaw(ctx); err != nil { // works after the end of its context
		t.Error(err)
	}
	var c struct{ State struct{ Paused bool } }
	if d.ask("GET", "/containers/"+services[0].Container+"/json", nil, &c); !c.State.Paused {
		t.Error("a container that was already paused was resumed")
	}
	d.ask("POST", "/containers/"+services[0].Container+"/unpause", nil, nil)
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = sb.Freeze(t.Context())
	conformance.WantError(t, err, fumehood.ErrUnavailable)
}

// A command in a container that stays paused cannot be killed. Its caller returns soon, and the command is killed when
// the container resumes.
func TestExec_containerPaused(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	running := begun(t, sb, fumehood.Cmd{Args: []string{"sh", "-c", "echo begun; exec sleep 1000"}})
	if is, err := engineOf(t).Pause(t.Context(), sb.ServiceInfo().Container); err != nil || !is { // runc may need several tries under load
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrCanceled) {
		t.Errorf("a call: %v", err)
	}
	if err := running.Kill(t.Context()); err != nil {
		t.Errorf("a kill: %v", err)
	}
	if res, err := running.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost || !res.Leaked || res.CausedInside {
		t.Errorf("killed command: %+v, %v", res, err)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("it took %v", took)
	}
	newRawDaemon(t).ask("POST", "/containers/"+sb.ServiceInfo().Container+"/unpause", nil, nil)
	if got := sh(t, sb, "while pidof sleep >/dev/null; do :; done; echo gone"); got != "gone" {
		t.Errorf("got %q", got)
	}
}
