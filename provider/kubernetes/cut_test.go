//go:build linux && amd64

package kubernetes_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

// A restart of the API server, the kubelet or containerd loses no command and none of its output, and repeats none. This test is
// not parallel: it ends the streams of all sandboxes.
func TestCut(t *testing.T) {
	p := newProvider(t, kubernetes.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian})
	const script = "echo once >>/tmp/runs; i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.02; done; read line; echo $line"
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintln(&want, i)
	}
	want.WriteString("ended\n")
	for _, program := range []string{"api", "kubelet", "containerd"} {
		process, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, StdinPipe: true})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // it runs
		if out, err := exec.CommandContext(t.Context(), "../../scripts/kubernetes-node", "restart", filepath.Dir(node(t)), program).CombinedOutput(); err != nil {
			t.Fatalf("restart %s: %v\n%s", program, err, out)
		}
		if _, err := process.Write([]byte("ended\n")); err != nil {
			t.Errorf("%s: write: %v", program, err)
		}
		res, err := process.Wait(t.Context())
		if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 0 || res.Stdout.Text() != want.String() {
			t.Errorf("%s: %v, %v", program, res, err)
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
