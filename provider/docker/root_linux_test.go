package docker_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// In a service whose user is not root, root must have the same capabilities as in a service of root (moby#45491).
func TestRoot_otherUsersService(t *testing.T) {
	tier.Need(t, tier.CI)
	t.Parallel()
	const capabilities = `grep '^Cap' /proc/self/status`
	// This machine's daemon may itself lack capabilities.
	d := dockertest.StartRootlessDaemon(t, debian)
	p := newProvider(t, docker.Options{Host: d.Host, NoSockets: true, StateDir: t.TempDir(), AllowUnenforcedLimits: true})
	want := says(t, start(t, p, fumehood.Spec{Image: debian}), "sh", "-c", capabilities)
	for name, sb := range map[string]fumehood.Sandbox{
		"image":   start(t, p, fumehood.Spec{Image: debian, User: "tester"}),
		"kept":    keep(t, p, fumehood.Spec{Image: debian, User: "tester"}),
		"compose": start(t, p, fumehood.Spec{Compose: project(t, "services: {default: {image: fumehood-test/python, user: tester, command: sleep infinity}}")}),
		"own program": start(t, p, fumehood.Spec{Compose: project(t, `
services: {default: {image: fumehood-test/python, user: tester, command: python3 -m http.server 8000, cap_add: [CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, NET_BIND_SERVICE, SETGID, SETUID], cap_drop: [ALL]}}`)}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "umask 077; echo x >/tmp/theirs; echo ready; exec sleep 1000"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range other.Follow(t.Context(), fumehood.Stdout, 0) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			as := sb.As("root")
			for _, script := range []string{
				"echo y >>/tmp/theirs", "chown daemon /tmp/theirs", "useradd --no-create-home other && su other -c true", "pkill -9 sleep",
			} {
				res, err := as.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
				if err != nil || !res.Success() {
					t.Errorf("%s: %v, %+v", script, err, res)
				}
			}
			if t.Failed() {
				return // no container may have ended
			}
			if res, err := other.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || res.Signal != 9 {
				t.Errorf("its user's process: %+v, %v", res, err)
			}
			res, err := as.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", capabilities}})
			if err != nil || res.Stdout.Text() != want {
				t.Errorf("root has\n%s%v, want\n%s", res.Stdout.Text(), err, want)
			}
			// Commands of other users get no capabilities.
			res, err = sb.As("daemon").Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", capabilities}})
			if err != nil || !strings.Contains(res.Stdout.Text(), "CapEff:\t0000000000000000") {
				t.Errorf("another user has %s, %v", res.Stdout.Text(), err)
			}
		})
	}
}

// If that is impossible, it is rejected before anything runs. This applies to processes started by the Engine itself,
// and to a daemon that lacks capabilities.
func TestRoot_otherUsersService_refused(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian, User: "tester"})
	for name, svc := range map[string]fumehood.Service{"guest": sb, "direct": sb.ViaEngine()} {
		for _, user := range []string{"root", "0", "0:0"} {
			res, err := svc.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "touch /tmp/ran && chown daemon /tmp/ran && rm /tmp/ran"}})
			if err == nil && res.Success() {
				continue // allowed: Engine 24 or later, or a daemon that lacks no capabilities
			}
			if err == nil {
				t.Fatalf("%s as %s: %+v", name, user, res)
			}
			if want := "root would have no capabilities here"; !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s as %s: got %v, want %q", name, user, err, want)
			}
			if ran := says(t, sb, "ls", "/tmp"); ran != "" {
				t.Errorf("%s as %s: left %q", name, user, ran)
			}
		}
	}
	if got, err := sb.ViaEngine().As("1").Exec(t.Context(), fumehood.Cmd{Args: []string{"id", "-u"}}); err != nil || got.Stdout.Text() != "1\n" {
		t.Errorf("another user: %+v, %v", got, err)
	}
}

func TestRoot_otherUsersService_hook(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	yaml := func(user, hook string) *fumehood.Compose {
		return project(t, "services: {default: {image: fumehood-test/python, user: \""+user+"\", command: sleep infinity, post_start: [{user: \""+hook+"\", command: [sh, -c, 'touch /made && chown daemon /made']}]}}")
	}
	sb := start(t, p, fumehood.Spec{Compose: yaml("0", "root")})
	if got := says(t, sb, "stat", "-c", "%U", "/made"); got != "daemon\n" {
		t.Errorf("what the command after the start made belongs to %q", got)
	}
	spec := fumehood.Spec{Name: "hook-" + strings.ToLower(rand.Text()[:8]), Compose: yaml("tester", "0:0")}
	sb, err := p.Start(t.Context(), spec)
	if err == nil { // Engine 24 or later
		if got := says(t, sb, "stat", "-c", "%U", "/made"); got != "daemon\n" {
			t.Errorf("what the command after the start made belongs to %q", got)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	wantText(t, err, "check post_start in service default: root would have no capabilities here")
	if left := objectsOf(t, spec.Name); len(left) != 0 || !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("left behind: %v; the class is %v", left, fumehood.ClassOf(err))
	}
}
