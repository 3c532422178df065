//go:build linux && (amd64 || arm64)

package native_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// helperOf returns the process that connects a sandbox to the outside.
func helperOf(t *testing.T, sb fumehood.Sandbox) int {
	t.Helper()
	namespace := ""
	if os.Getenv(unprivileged) != "" { // there are no control groups
		namespace = run(t, sb, "readlink /proc/self/ns/net")
	}
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, f := range comms {
		comm, _ := os.ReadFile(f) // empty if it has ended
		groups, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cgroup"))
		joined, _ := os.Readlink(filepath.Join(filepath.Dir(f), "fd/3"))
		if string(comm) == "slirp4netns\n" && (strings.Contains(string(groups), "/fumehood/"+sb.Info().Name+"-") || namespace != "" && joined == namespace) {
			var pid int
			if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("no process connects the sandbox")
	return 0
}

// What reads a sandbox's packets must have as few rights as possible.
func TestNetwork_helper(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	needNetwork(t)
	sb := start(t, p, fumehood.Spec{Image: busybox, Network: bridge})
	pid := helperOf(t, sb)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapPrm:\t0000000000000400", "CapBnd:\t0000000000000400", "NoNewPrivs:\t1", "Seccomp:\t2", "NSpid:\t" + fmt.Sprint(pid) + "\t1"} {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("no %q in %s", want, status)
		}
	}
	for dir, want := range map[string]string{"": "[d etc/ d run/]", "etc": "[- resolv.conf]", "run": "[]"} {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/%s", pid, dir))
		if err != nil || fmt.Sprint(files) != want {
			t.Errorf("it sees %s in /%s: %v", files, dir, err)
		}
	}

	thaw, err := sb.Freeze(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the lost network is noticed", func() bool { return sb.Check(t.Context()) != nil })
	conformance.WantError(t, sb.Check(t.Context()), fumehood.ErrBroken)
	_, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	conformance.WantError(t, err, fumehood.ErrBroken)
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	gone(t, sb.Info().Name)
}

func TestNetwork_frozen(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	needNetwork(t)
	sb := start(t, p, fumehood.Spec{Image: busybox, Network: bridge})
	if _, err := sb.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := sb.Close(ctx); err != nil {
		t.Error(err)
	}
	gone(t, sb.Info().Name)
}

// The network of a kept sandbox stays when the process that started it closes the sandbox.
func TestNetwork_kept(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	needNetwork(t)
	sb := keep(t, p, fumehood.Spec{Image: debian, Network: bridge})
	name := sb.Info().Name
	pid := helperOf(t, sb)
	if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", server, "10.201.0.100", "8000"}, Detach: true}); err != nil {
		t.Fatal(err)
	}
	first, err := sb.Forward(t.Context(), fumehood.Port{Container: 8000})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the server answers", func() bool { return askTCP(first) == "echo" })
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := askTCP(first); got != "" {
		t.Errorf("after the close: %q", got)
	}
	opened := d.open(t, name)
	if now := helperOf(t, opened); now != pid {
		t.Errorf("process %d connects the sandbox, before it was %d", now, pid)
	}
	second, err := opened.Forward(t.Context(), fumehood.Port{Container: 8000})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the server answers again", func() bool { return askTCP(second) == "echo" })
	if conn, err := opened.As("tester").Connection(t.Context()); err != nil || strings.Join(conn.Shell, " ") != "fumehood shell "+name+" --user tester" {
		t.Errorf("%+v, %v", conn, err)
	}
	if err := opened.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := helperOf(t, opened); now != pid {
		t.Errorf("after the stop process %d connects the sandbox, before it was %d", now, pid)
	}
}

func TestNetwork_noHelper(t *testing.T) {
	p := newProvider(t, native.Options{})
	t.Setenv("PATH", t.TempDir())
	_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Network: bridge})
	conformance.WantError(t, err, fumehood.ErrUnsupported)
	if err == nil || !strings.Contains(err.Error(), "install the package slirp4netns") {
		t.Errorf("got %v", err)
	}
}
