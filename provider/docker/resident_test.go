package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/tier"
)

// keep starts a kept sandbox that is removed when the test ends.
func keep(t *testing.T, p *docker.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	spec.Keep = true
	sb := start(t, p, spec)
	removedAfter(t, p, sb.Info().Name)
	return sb
}

// open opens a sandbox like another process: through another provider.
func open(t *testing.T, name string, opts docker.Options) fumehood.Sandbox {
	t.Helper()
	sb, err := newProvider(t, opts).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return sb
}

// says runs a command that must succeed, and returns its output.
func says(t *testing.T, sb fumehood.Sandbox, args ...string) string {
	t.Helper()
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: args})
	if err != nil || !res.Success() {
		t.Fatalf("%q: %+v, %v", args, res, err)
	}
	return res.Stdout.Text()
}

// rejoined returns a detached command of an opened sandbox.
func rejoined(t *testing.T, sb fumehood.Sandbox, id int) fumehood.Process {
	t.Helper()
	if err := sb.RefreshProcesses(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Process(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestResident_attacked(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		network string
		direct  bool // hosts and attackers use the socket for this machine, otherwise the abstract one
	}{
		"network none": {network: fumehood.NetworkNone}, "network host": {network: fumehood.NetworkHost},
		"direct": {network: fumehood.NetworkNone, direct: true},
	} {
		t.Run(title, func(t *testing.T) { // one at a time: each has eight processes that never wait
			hosts := docker.Options{NoSockets: !c.direct}
			network := c.network
			p := newProvider(t, docker.Options{})
			sb := keep(t, p, fumehood.Spec{Image: debian, Network: fumehood.Network{Mode: network}})
			name := sb.Info().Name
			// As root, and as the guest's own user, which is root too.
			residence := strings.TrimSpace(says(t, sb, "sh", "-c", `grep -o '@fumehood-.*' /proc/net/unix | sort -u`))
			if network == fumehood.NetworkHost {
				residence = residenceOf(t, sb)
			}
			if !strings.HasPrefix(residence, "@fumehood-") || strings.ContainsAny(residence, " \n") {
				t.Fatalf("the sockets are %q", residence)
			}
			// The same name is that of the socket for hosts on this machine.
			published := "/.fumehood/host/" + residence[1:]
			if got := says(t, sb, "sh", "-c", "ls -A /.fumehood/host"); got != residence[1:]+"\n" {
				t.Errorf("sockets for this machine: %q", got)
			}
			// The script floods the socket, sends arbitrary data, and keeps connections open. Nobody may get an answer.
			flood := `
import socket, sys, os
address = sys.argv[1].replace('@', '\0')
held, told = [], 0
for i in range(300):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(address)
    try:
        s.sendall(os.urandom(i))
    except OSError:
        pass
    held.append(s)
for s in held:
    try:
        while True:
            b = s.recv(1000)
            told += len(b)
            if not b: break
    except OSError:
        pass
print(told)
sys.stdout.flush()
for i in range(10**9):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(address)
    except OSError:
        pass
`
			socket := residence
			if c.direct {
				socket = published
			}
			attacker, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", flood, socket}})
			if err != nil {
				t.Fatal(err)
			}
			for c, err := range attacker.Follow(t.Context(), fumehood.Stdout, 0) {
				if err != nil || string(c.Data) != "0\n" {
					t.Errorf("the attacker received %s bytes, %v", c.Data, err)
				}
				break
			}
			// Hosts are served while this goes on.
			for range 7 {
				if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", flood, socket}}); err != nil {
					t.Fatal(err)
				}
			}
			for range tier.Pick(t, 3, 3, 10) {
				again := open(t, name, hosts)
				if got := says(t, again, "echo", "served"); got != "served\n" {
					t.Fatalf("got %q", got)
				}
			}
			again := open(t, name, hosts)
			// While the guest lives, the kernel refuses to bind the name again.
			if got := says(t, again, "python3", "-c", `
import socket, sys
for address in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.bind(address.replace('@', '\0'))
        print('bound')
    except OSError as e:
        print(e.errno)
`, residence, published); got != "98\n98\n" {
				t.Errorf("bind: %q", got)
			}
			if network == fumehood.NetworkHost { // processes outside can connect too
				strangers(t, residence)
				if got := says(t, open(t, name, hosts), "echo", "served"); got != "served\n" {
					t.Errorf("while strangers are connected: %q", got)
				}
			}
		})
	}
}

// execs returns a function for the options of another process. It counts how often that process has the Engine run a
// program in a container.
func execs(t *testing.T, opts docker.Options) (*docker.Provider, func() int64) {
	t.Helper()
	var n atomic.Int64
	p, proxy := faulty(t, opts)
	proxy.Decide(func(call string) faultproxy.Fault {
		if strings.HasSuffix(call, "/exec") {
			n.Add(1)
		}
		return faultproxy.None
	})
	return p, n.Load
}

// Later processes on this machine reach resident guests by a socket, so the Engine runs nothing for them.
func TestResident_socket(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), strings.Repeat("long", 30)) // longer than the address of a socket
	sb := keep(t, newProvider(t, docker.Options{StateDir: state}), fumehood.Spec{Image: debian})
	name := sb.Info().Name
	detached, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo up; exec sleep 4000"}, User: "tester", Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	sockets := names(t, filepath.Join(state, name, "sockets-default"))
	if len(sockets) != 2 {
		t.Errorf("sockets of the service's own user and of tester: %q", sockets)
	}
	later := func(opts docker.Options) int64 {
		p, count := execs(t, opts)
		sb, err := p.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer sb.Close(context.WithoutCancel(t.Context()))
		if got := says(t, sb, "id", "-u"); got != "0\n" {
			t.Errorf("got %q", got)
		}
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		if err := sb.WriteFile(t.Context(), "/tmp/x", content, fumehood.WriteOptions{}); err != nil {
			t.Error(err)
		}
		if got, err := sb.ReadFile(t.Context(), "/tmp/x", fumehood.ReadOptions{}); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		for c, err := range rejoined(t, sb, detached.Info().ID).Follow(t.Context(), fumehood.Stdout, 0) {
			if err != nil || string(c.Data) != "up\n" {
				t.Errorf("output of the detached command: %q, %v", c.Data, err)
			}
			break
		}
		return count()
	}
	if n := later(docker.Options{StateDir: state}); n != 0 {
		t.Errorf("the Engine ran %d programs for a process that finds the sockets", n)
	}
	for title, opts := range map[string]docker.Options{
		"a process that may not use sockets": {StateDir: state, NoSockets: true}, "a process with another folder": {StateDir: t.TempDir()},
	} {
		if n := later(opts); n != 2 {
			t.Errorf("the Engine ran %d programs for %s, want a relay for each user", n, title)
		}
	}
	for _, s := range sockets {
		if err := os.Remove(filepath.Join(state, name, "sockets-default", s)); err != nil {
			t.Fatal(err)
		}
	}
	if n := later(docker.Options{StateDir: state}); n != 2 {
		t.Errorf("the Engine ran %d programs although the sockets are missing, want a relay for each user", n)
	}
}

// residenceOf finds the socket of the resident guest from outside, by its descriptors.
func residenceOf(t *testing.T, sb fumehood.Sandbox) (residence string) {
	t.Helper()
	w := watch(t, sb)
	// The kernel's list of sockets may miss entries while other sockets are created and closed.
	conformance.Eventually(t, "the guest has a socket", func() bool {
		sockets, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		for p, s := range w.all() {
			if !s.guest() {
				continue
			}
			fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
			if err != nil {
				continue
			}
			for _, fd := range fds {
				target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.pid, fd.Name()))
				inode := strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")
				for line := range strings.Lines(string(sockets)) {
					f := strings.Fields(line)
					if len(f) == 8 && f[6] == inode && strings.HasPrefix(f[7], "@fumehood-") {
						residence = f[7]
						return true
					}
				}
			}
		}
		return false
	})
	return residence
}

// strangers connects from this process to a resident guest, without its secret.
func strangers(t *testing.T, residence string) {
	t.Helper()
	for i := range 20 {
		var c net.Conn
		conformance.Eventually(t, "a stranger connects; net.Dial does not wait for a place in the backlog", func() bool {
			var err error
			if c, err = net.Dial("unix", residence); err != nil && !errors.Is(err, syscall.EAGAIN) {
				t.Fatal(err)
			}
			return err == nil
		})
		_, _ = c.Write(bytes.Repeat([]byte{byte(i)}, 64))
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		data, err := io.ReadAll(c)
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) || len(data) > 32 { // its challenge is not secret
			t.Errorf("a stranger received %d bytes, %v", len(data), err)
		}
		_ = c.Close()
	}
}

func TestOpen_errors(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	check := func(t *testing.T, name string, class error, says string) {
		t.Helper()
		_, err := p.Open(t.Context(), name)
		if !errors.Is(err, class) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %v with %q", err, class, says)
		}
	}
	check(t, "no-such-sandbox", fumehood.ErrConfig, "fumehood ps")
	held := start(t, p, fumehood.Spec{Image: busybox})
	check(t, held.Info().Name, fumehood.ErrConfig, "no sandbox named")
	sb := keep(t, p, fumehood.Spec{Image: busybox, TTL: time.Hour})
	name := sb.Info().Name
	check(t, name, fumehood.ErrConfig, "has a sandbox")
	if err := sb.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, name, fumehood.ErrUnavailable, "exited with code 137")
	kept, err := p.Kept(t.Context(), name)
	if err != nil || len(kept) != 1 || kept[0].States["default"] != "exited (137)" || kept[0].Services[0].Container == "" {
		t.Errorf("it is listed as %+v, %v", kept, err)
	}
	// If another process starts the container, its guest waits in vain for a host that makes it the resident.
	if err := engineOf(t).StartContainer(t.Context(), compose.ContainerName(name)); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, name, docker.Options{}).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "its container was started again") {
		t.Errorf("started again: %v", err)
	}
}

// A renewal is an object of its own, which the next one replaces.
func TestRenew(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	name := keep(t, p, fumehood.Spec{Image: busybox, TTL: time.Hour}).Info().Name
	for range 3 {
		if _, err := p.Renew(t.Context(), name, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if left := objectsOf(t, name); len(left) != 2 { // the container, and one renewal
		t.Errorf("objects: %v", left)
	}
}

func TestResident_size(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := keep(t, p, fumehood.Spec{Image: busybox})
	name := sb.Info().Name
	var all sync.WaitGroup
	for i := range 8 {
		again := open(t, name, docker.Options{})
		all.Go(func() {
			for range 20 {
				if res, err := again.Exec(t.Context(), fumehood.Cmd{Args: []string{"echo", "x"}}); err != nil || !res.Success() {
					t.Errorf("%+v, %v", res, err)
				}
			}
			cmd := fumehood.Cmd{Args: []string{"sh", "-c", "head -c 3000000 /dev/zero"}, Detach: true, StdoutCap: 10_000}
			d, err := again.Start(t.Context(), cmd)
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := d.Wait(t.Context()); err != nil || res.Stdout.Total != 3_000_000 || len(res.Stdout.Bytes) > 3_000_000 {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
			if err := again.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	last := open(t, name, docker.Options{})
	if err := last.RefreshProcesses(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(last.Processes()); n != 8 {
		t.Errorf("%d detached commands", n)
	}
	conformance.Eventually(t, "the guest has at most 10 MiB", func() bool {
		status := says(t, last, "cat", "/proc/1/status")
		_, rest, _ := strings.Cut(status, "VmRSS:")
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the resident guest has %d KiB", kib)
		return kib <= 10<<10
	})
}

func TestDetached_otherTransports(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := keep(t, p, fumehood.Spec{Image: debian})
	name := sb.Info().Name
	says(t, sb, "true")
	if err := start(t, p, fumehood.Spec{Image: busybox}).RefreshProcesses(t.Context()); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("in a sandbox that is not kept: %v", err)
	}
	direct := open(t, name, docker.Options{Transport: docker.TransportEngine})
	if got := says(t, direct, "echo", "direct"); got != "direct\n" {
		t.Errorf("got %q", got)
	}
	if err := direct.RefreshProcesses(t.Context()); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("by the Engine's exec: %v", err)
	}
	// Commands of other users, files and connections still work.
	again := open(t, name, docker.Options{})
	if res, err := again.As("nobody").Exec(t.Context(), fumehood.Cmd{Args: []string{"id", "-un"}}); err != nil || res.Stdout.Text() != "nobody\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := again.WriteFile(t.Context(), "/tmp/f", []byte("x"), fumehood.WriteOptions{}); err != nil {
		t.Error(err)
	}
	c, err := again.Connection(t.Context())
	container := name + "-" + compose.DefaultService + "-1"
	if err != nil || c.Container != container || !slices.Equal(c.Shell, []string{"docker", "exec", "-it", container, "bash", "-l"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if left := objectsOf(t, name); len(left) != 1 || left[0].Labels[owner.LabelKey] == "" {
		t.Errorf("there is %+v", left)
	}
}

func TestDetached_connectionBreaks(t *testing.T) {
	t.Parallel()
	name := keep(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox}).Info().Name
	p, proxy := faulty(t, docker.Options{NoSockets: true})
	sb, err := p.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(context.WithoutCancel(t.Context()))
	proc, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Sever()
	if info := rejoined(t, sb, proc.Info().ID).Info(); info.Ended { // over another relay
		t.Errorf("the command after a cut: %+v", info)
	}
	proxy.Decide(func(string) faultproxy.Fault { return faultproxy.ResetBefore }) // no relay can continue the connection
	proxy.Sever()
	if res, err := proc.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost {
		t.Fatalf("got %+v, %v", res, err)
	}
	if err := proc.Kill(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("killed although the connection is broken: %v", err)
	}
	proxy.Decide(nil)
	again := rejoined(t, sb, proc.Info().ID)
	if again.Info().Ended {
		t.Error("reported as ended although it is running")
	}
	if err := again.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := again.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled {
		t.Errorf("got %+v, %v", res, err)
	}
	if err := again.Forget(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDetached_viaEngine(t *testing.T) {
	t.Parallel()
	sb := keep(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, Detach: true, ViaEngine: true}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
