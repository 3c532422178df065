//go:build amd64 || arm64

package native

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
)

// A command that is lost with its sandbox keeps what it had written.
func TestExec_sandboxKilled(t *testing.T) {
	t.Parallel()
	_, sb, inside := startInside(t, "fumehood-test/busybox")
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
	for _, s := range inside.services {
		if err := unix.Kill(s.init.pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	res := <-done
	if res == nil {
		return
	}
	if res.Outcome != fumehood.Lost || res.CausedInside || !strings.HasSuffix(res.Reason, "killed from outside") {
		t.Errorf("got %v, %q, caused inside: %v", res.Outcome, res.Reason, res.CausedInside)
	}
	if res.Stdout.Text() != "begun\n" || res.Stderr.Text() != "error\n" || res.Stdout.Total != 6 {
		t.Errorf("got %q of %d bytes, and %q", res.Stdout.Text(), res.Stdout.Total, res.Stderr.Text())
	}
}
