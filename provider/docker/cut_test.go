package docker_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
)

// cutReason is what results and errors say about a cut connection.
const cutReason = "the connection to the daemon was cut"

// severed connects through a proxy that can cut connections. Guests use sockets of this process only with sockets.
func severed(t *testing.T, sockets bool) (*docker.Provider, *faultproxy.Proxy) {
	t.Helper()
	return faulty(t, docker.Options{NoSockets: !sockets, StateDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
}

func works(t *testing.T, name string, sb fumehood.Service) {
	t.Helper()
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo yes; exit 3"}, Timeout: time.Minute})
	if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 3 || res.Stdout.Text() != "yes\n" {
		t.Errorf("%s: %+v, %v", name, res, err)
	}
}

// Commands after a cut reach the same guest, so what earlier commands left still runs.
func TestCut_laterCommands(t *testing.T) {
	t.Parallel()
	for name, sockets := range map[string]bool{"stream": false, "socket": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, proxy := severed(t, sockets)
			sb := start(t, p, fumehood.Spec{Image: busybox})
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/pid"}})
			if err != nil || !res.Success() {
				t.Fatal(res, err)
			}
			for range 3 {
				proxy.Sever()
				works(t, "after a cut", sb)
				works(t, "as another user", sb.As("nobody"))
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "kill -0 $(cat /tmp/pid)"}})
				if err != nil || !res.Success() {
					t.Errorf("a process from before the cut: %+v, %v", res, err)
				}
				if err := sb.WriteFile(t.Context(), "/tmp/file", []byte("x"), fumehood.WriteOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A service's own program is not the guest. It goes on, and a new guest runs later commands.
func TestCut_project(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	sb := start(t, p, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{ownMain(t)}}})
	for range 3 {
		proxy.Sever()
		works(t, "after a cut", sb)
		works(t, "as another user", sb.As("nobody"))
	}
}

// The process that started a kept sandbox reconnects like any other.
func TestCut_kept(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	sb := keep(t, p, fumehood.Spec{Image: busybox})
	detached, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo begun; sleep 1000"}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	id := detached.Info().ID
	for range 3 {
		proxy.Sever()
		works(t, "after a cut", sb)
	}
	if info := rejoined(t, sb, id).Info(); info.Ended {
		t.Errorf("the detached command: %+v", info)
	}
}

func TestCut_commandInFlight(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	for name, serviceOf := range map[string]func(fumehood.Sandbox) fumehood.Service{
		"own user":     func(sb fumehood.Sandbox) fumehood.Service { return sb },
		"another user": func(sb fumehood.Sandbox) fumehood.Service { return sb.As("nobody") },
	} {
		t.Run(name, func(t *testing.T) {
			sb := start(t, p, fumehood.Spec{Image: busybox})
			s := serviceOf(sb)
			running, err := s.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo run >>/tmp/runs; echo before; sleep 1000"}})
			if err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "the command runs", func() bool {
				runs, err := sb.ReadFile(t.Context(), "/tmp/runs", fumehood.ReadOptions{})
				return err == nil && len(runs) > 0
			})
			for _, err := range running.Events() { // its output has arrived
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			proxy.Sever()
			res, err := running.Wait(t.Context())
			if err != nil || res.Outcome != fumehood.Lost || res.CausedInside || res.Reason != cutReason || res.Stdout.Text() != "before\n" {
				t.Errorf("got %+v, %v", res, err)
			}
			works(t, "later", s)
			conformance.Eventually(t, "the lost command is killed", func() bool {
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "! ps -o args | grep '^sleep 1000'"}})
				return err == nil && res.Success()
			})
			if runs, err := sb.ReadFile(t.Context(), "/tmp/runs", fumehood.ReadOptions{}); err != nil || string(runs) != "run\n" {
				t.Errorf("the command ran %q, %v", runs, err)
			}
		})
	}
}

// cutting is content that does not end. It cuts the connections after the first megabytes.
type cutting struct {
	proxy *faultproxy.Proxy
	left  int
}

func (e *cutting) Read(p []byte) (int, error) {
	clear(p)
	if e.left -= len(p); e.left < 0 && e.proxy != nil {
		e.proxy.Sever()
		e.proxy = nil
	}
	return len(p), nil
}

func TestCut_fileInFlight(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	sb := start(t, p, fumehood.Spec{Image: busybox})
	check := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), cutReason) {
			t.Errorf("%s: got %v", name, err)
		}
		works(t, name, sb)
	}
	_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo old >/tmp/written; dd if=/dev/zero of=/tmp/large bs=1M count=64 2>/dev/null"}})
	if err != nil {
		t.Fatal(err)
	}
	check("a write", sb.WriteFrom(t.Context(), "/tmp/written", &cutting{proxy, 4 << 20}, 1<<30, fumehood.WriteOptions{Atomic: true}))
	if got, err := sb.ReadFile(t.Context(), "/tmp/written", fumehood.ReadOptions{}); err != nil || !bytes.Equal(got, []byte("old\n")) {
		t.Errorf("the file that was written has %d bytes, %v", len(got), err)
	}
	r, _, err := sb.Open(t.Context(), "/tmp/large")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	proxy.Sever()
	n, err := io.Copy(io.Discard, r) // the write's cut has led to a relay, which another one continues
	_ = r.Close()
	if err != nil || n != 63<<20 {
		t.Errorf("a read: %d bytes, %v", n, err)
	}
}

// A start that is cut fails and names the cut, or begins again if nothing of the user's has run. Nothing is left.
func TestCut_start(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]fumehood.Spec{
		"image": {Image: busybox}, "compose": {Compose: &fumehood.Compose{Files: []string{ownMain(t)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, proxy := severed(t, false)
			warm(t)
			spec.Name = "cut-start-" + name
			for _, at := range []string{"POST /containers/*/attach", "POST /containers/*/start", "POST /exec/*/start"} {
				proxy.Decide(func(call string) faultproxy.Fault {
					if call != at {
						return faultproxy.None
					}
					return faultproxy.Truncate
				})
				sb, err := p.Start(t.Context(), spec)
				proxy.Decide(nil)
				if err == nil {
					works(t, at, sb)
					err = sb.Close(t.Context())
				} else if isOurs(err) && strings.Contains(err.Error(), cutReason) {
					t.Log(at, err)
					err = nil
				}
				if err != nil {
					t.Errorf("%s: %v", at, err)
				}
				if left := objectsOf(t, spec.Name); len(left) != 0 {
					t.Errorf("%s: left behind: %+v", at, left)
				}
			}
		})
	}
}

// A command fails in bounded time while there is no daemon. The sandbox works again when the daemon is back.
func TestCut_daemonGone(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	sb := start(t, p, fumehood.Spec{Image: busybox})
	works(t, "before", sb)
	proxy.Decide(func(string) faultproxy.Fault { return faultproxy.ResetBefore })
	proxy.Sever()
	began := time.Now()
	_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	if took := time.Since(began); !isOurs(err) || !strings.Contains(err.Error(), cutReason) || took > 30*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	proxy.Decide(nil)
	works(t, "after", sb)
}

// A program that kills the relay loses nothing: another one continues the connection.
func TestCut_relayKilled(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	sb := start(t, p, fumehood.Spec{Image: busybox})
	proxy.Sever()
	works(t, "through a relay", sb)
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo before; sleep 1; kill -9 $(ps -o pid,args | awk '/[r]elay fumehood/ {print $1}'); sleep 1; echo after"}})
	if err != nil || !res.Success() || res.Stdout.Text() != "before\nafter\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	works(t, "after", sb)
}

// At the limit on processes a relay may not start. That is the limit, and not a failure of ours.
func TestCut_processLimit(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 100}})
	_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "(sleep 12; exec killall sleep) & while true; do sleep 1000 >/dev/null 2>&1 & done"}, Timeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Sever()
	for range 2 {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		if !errors.Is(err, fumehood.ErrLimit) || isOurs(err) || !strings.Contains(err.Error(), "limit of 100 processes") {
			t.Errorf("got %+v, %v", res, err)
		}
	}
	conformance.Eventually(t, "the sandbox works when the processes have ended", func() bool {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		return err == nil && res.Success()
	})
}

// The Engine reports an exec that cannot send its output as ended. That is no evidence that a program has killed it.
func TestCut_output(t *testing.T) {
	t.Parallel()
	p, proxy := severed(t, false)
	sb := start(t, p, fumehood.Spec{Image: busybox})
	for i, s := range []fumehood.Service{sb, sb, sb.As("nobody")} { // by the first connection, by a relay, by an exec
		printing, err := s.Start(t.Context(), fumehood.Cmd{Args: []string{"yes"}})
		if err != nil {
			t.Fatal(err)
		}
		var seen int64
		for c, err := range printing.Follow(t.Context(), fumehood.Stdout, 0) {
			if err != nil {
				t.Fatal(err)
			}
			seen = c.Offset
			break
		}
		proxy.Sever()
		if i == 1 { // it goes on, by another relay
			for _, err := range printing.Follow(t.Context(), fumehood.Stdout, seen+64<<20) {
				if err != nil {
					t.Error(err)
				}
				break
			}
			if err := printing.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if res, err := printing.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled {
				t.Errorf("by a relay: %v, %v", res, err)
			}
			continue
		}
		res, err := printing.Wait(t.Context())
		if err != nil || res.Outcome != fumehood.Lost || res.CausedInside || res.Reason != cutReason || res.Stdout.Total == 0 {
			t.Errorf("%s, caused inside: %v, %d bytes: %v, %v", res.Reason, res.CausedInside, res.Stdout.Total, res.Outcome, err)
		}
		works(t, "later", s)
	}
}
