package docker_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

// A command that is lost with its container keeps what it had written, and the reason is what happened to the container.
func TestExec_containerEnds(t *testing.T) {
	t.Parallel()
	container := func(sb fumehood.Sandbox) string { return "/containers/" + sb.ServiceInfo().Container }
	for name, c := range map[string]struct {
		end    func(d *rawDaemon, sb fumehood.Sandbox)
		reason []string // any of them; a removal first kills
	}{
		"docker kill": {func(d *rawDaemon, sb fumehood.Sandbox) {
			d.ask("POST", container(sb)+"/kill?signal=KILL", nil, nil)
		}, []string{"has exited with code 137: it was killed or stopped through the Engine"}},
		"docker stop": {func(d *rawDaemon, sb fumehood.Sandbox) {
			d.ask("POST", container(sb)+"/stop?t=0", nil, nil)
		}, []string{"has exited with code 137: it was killed or stopped through the Engine"}},
		"docker rm -f": {func(d *rawDaemon, sb fumehood.Sandbox) {
			d.ask("DELETE", container(sb)+"?force=1", nil, nil)
		}, []string{"was removed", "killed or stopped through the Engine"}},
		"killed by the host": {func(d *rawDaemon, sb fumehood.Sandbox) {
			var found struct{ State struct{ Pid int } }
			d.ask("GET", container(sb)+"/json", nil, &found)
			if err := syscall.Kill(found.State.Pid, syscall.SIGKILL); err != nil {
				d.t.Error(err)
			}
		}, []string{"has exited with code 137: it was killed from outside"}},
		"docker kill of a kept one": {func(d *rawDaemon, sb fumehood.Sandbox) {
			d.ask("POST", container(sb)+"/kill?signal=KILL", nil, nil)
		}, []string{"has exited with code 137: it was killed or stopped through the Engine"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, docker.Options{})
			spec := fumehood.Spec{Image: "fumehood-test/busybox"}
			var sb fumehood.Sandbox
			if strings.HasSuffix(name, "kept one") {
				sb = open(t, keep(t, p, spec).Info().Name, docker.Options{})
			} else {
				sb = start(t, p, spec)
			}
			done := make(chan *fumehood.Result, 1)
			go func() {
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo begun; echo error >&2; touch /tmp/begun; exec sleep 1000"}})
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			for exists := false; !exists; {
				_, err := sb.Stat(t.Context(), "/tmp/begun")
				exists = err == nil
			}
			<-time.After(time.Second) // what was written that long before is kept
			c.end(newRawDaemon(t), sb)
			res := <-done
			if res == nil {
				return
			}
			known := false
			for _, reason := range c.reason {
				known = known || strings.Contains(res.Reason, reason)
			}
			if res.Outcome != fumehood.Lost || res.ExitCode != -1 || res.CausedInside || !known {
				t.Errorf("got %v, %q, caused inside: %v", res.Outcome, res.Reason, res.CausedInside)
			}
			_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			conformance.WantError(t, err, fumehood.ErrUnavailable)
			_, err = sb.ReadFile(t.Context(), "/etc/passwd", fumehood.ReadOptions{})
			conformance.WantError(t, err, fumehood.ErrUnavailable)
			if res.Stdout.Text() != "begun\n" || res.Stderr.Text() != "error\n" || res.Stdout.Total != 6 {
				t.Errorf("got %q of %d bytes, and %q", res.Stdout.Text(), res.Stdout.Total, res.Stderr.Text())
			}
		})
	}
}
