package docker_test

import (
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// A service's own TERM takes precedence over the type of the terminal.
func TestExec_term(t *testing.T) {
	t.Parallel()
	const own = "services: {default: {image: fumehood-test/busybox, command: [sleep, infinity], environment: {TERM: linux}}}\n"
	for name, c := range map[string]struct {
		spec fumehood.Spec
		want string
	}{
		"no TERM":      {fumehood.Spec{Image: busybox}, "vt100"},
		"of the spec":  {fumehood.Spec{Image: busybox, Env: map[string]string{"TERM": "linux"}}, "linux"},
		"of a project": {fumehood.Spec{Compose: project(t, own)}, "linux"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := start(t, newProvider(t, docker.Options{}), c.spec)
			for way, svc := range map[string]fumehood.Service{"guest": sb, "user": sb.As("tester"), "engine": sb.ViaEngine()} {
				res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", `printf %s "$TERM"`}, TTY: true, Term: "vt100"})
				if err != nil || res.Stdout.Text() != c.want {
					t.Errorf("%s: %+v, %v", way, res, err)
				}
			}
		})
	}
}
