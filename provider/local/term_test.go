package local_test

import (
	"runtime"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/local"
)

func TestExec_term(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("there are no terminals")
	}
	p := newProvider(t, local.Options{})
	for want, env := range map[string]map[string]string{"xterm": nil, "vt100": {"TERM": "vt100"}, "": {"TERM": ""}} {
		sb := start(t, p, fumehood.Spec{Env: env})
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", `printf %s "$TERM"`}, TTY: true})
		if err != nil || res.Stdout.Text() != want {
			t.Errorf("of a sandbox with %v: %+v, %v", env, res, err)
		}
	}
}
