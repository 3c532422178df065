package docker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// A process in the sandbox that kills a service's own program has broken the sandbox. A service that the daemon was
// asked to stop has not been broken by the sandbox.
func TestService_deathCause(t *testing.T) {
	t.Parallel()
	const own = "services: {default: {image: fumehood-test/busybox, restart: 'RESTART', command: [sh, -c, 'touch /tmp/up; while :; do sleep 1; done']}}"
	fromInside := func(_ *rawDaemon, sb fumehood.Sandbox) {
		_, _ = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"kill", "-TERM", "1"}}) // the command may be lost
	}
	for name, c := range map[string]struct {
		end    func(d *rawDaemon, sb fumehood.Sandbox)
		inside bool
	}{
		"from inside":              {fromInside, true},
		"and the Engine starts it": {fromInside, true},
		"by docker kill": {func(d *rawDaemon, sb fumehood.Sandbox) {
			d.ask("POST", "/containers/"+sb.ServiceInfo().Container+"/kill?signal=KILL", nil, nil)
		}, false},
		"by docker stop": {func(d *rawDaemon, sb fumehood.Sandbox) {
			d.ask("POST", "/containers/"+sb.ServiceInfo().Container+"/stop?t=1", nil, nil)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, docker.Options{})
			sb := start(t, p, fumehood.Spec{Compose: project(t, strings.ReplaceAll(own, "RESTART", map[bool]string{true: "always", false: "no"}[strings.HasPrefix(name, "and")]))})
			running := begun(t, sb, fumehood.Cmd{Args: []string{"sh", "-c", "echo begun; exec sleep 1000"}})
			c.end(newRawDaemon(t), sb)
			if res, err := running.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost || res.CausedInside != c.inside {
				t.Errorf("the command in flight: %+v, %v", res, err)
			}
			if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrUnavailable) || errors.Is(err, fumehood.ErrBroken) != c.inside {
				t.Errorf("the next command: %v, %v", err, fumehood.ClassOf(err))
			}
		})
	}
}
