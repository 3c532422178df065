//go:build linux && amd64

package kubernetes_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

// A restart of the API server, the kubelet or containerd loses no command silently, and repeats none. The sandbox works again
// afterwards. This test is not parallel: it ends the streams of all sandboxes.
func TestCut(t *testing.T) {
	p := newProvider(t, kubernetes.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian})
	for _, program := range []string{"api", "kubelet", "containerd"} {
		const script = "echo once >>/tmp/runs; sleep 5; echo ended"
		process, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // it runs
		if out, err := exec.CommandContext(t.Context(), "../../scripts/kubernetes-node", "restart", filepath.Dir(node(t)), program).CombinedOutput(); err != nil {
			t.Fatalf("restart %s: %v\n%s", program, err, out)
		}
		res, err := process.Wait(t.Context())
		t.Logf("%s: %v, %v", program, res, err)
		switch {
		case err == nil && res.Outcome == fumehood.Exited && res.ExitCode == 0 && strings.TrimSpace(res.Stdout.Text()) == "ended":
		case err == nil && res.Outcome == fumehood.Lost:
		case errors.Is(err, fumehood.ErrInfrastructure):
		default:
			t.Errorf("%s: %+v, %v", program, res, err)
		}
		began := time.Now()
		res, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "cat /tmp/runs; rm /tmp/runs"}})
		if err != nil || res.Stdout.Text() != "once\n" {
			t.Fatalf("after %s: %+v, %v", program, res, err)
		}
		t.Logf("after %s it works again in %v", program, time.Since(began).Round(time.Millisecond))
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
