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
	"github.com/fumehood/fumehood/provider"
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

func followed(t *testing.T, p fumehood.Process, s fumehood.Stream, from int64) string {
	t.Helper()
	var b bytes.Buffer
	for c, err := range p.Follow(t.Context(), s, from) {
		if err != nil {
			t.Fatal(err)
		}
		b.Write(c.Data)
	}
	return b.String()
}

func TestDetached_laterProcess(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := keep(t, p, fumehood.Spec{Image: debian})
	name := sb.Info().Name
	cmd := fumehood.Cmd{Args: []string{"sh", "-c", `echo first; echo warned >&2; while read -r line; do echo "got $line"; done; exit 7`}, Detach: true, StdinPipe: true}
	first, err := sb.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(first, "one\n"); err != nil {
		t.Fatal(err)
	}
	for c, err := range first.Follow(t.Context(), fumehood.Stdout, 6) { // waits until it reads
		if err != nil || string(c.Data) != "got one\n" {
			t.Fatalf("%q, %v", c.Data, err)
		}
		break
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := first.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost {
		t.Errorf("in the process that closed the sandbox: %+v, %v", res, err)
	}

	a, b := open(t, name, docker.Options{}), open(t, name, docker.Options{})
	if all := a.Processes(); len(all) != 0 {
		t.Errorf("%d commands are known before the search", len(all))
	}
	later, other := rejoined(t, a, first.Info().ID), rejoined(t, b, first.Info().ID)
	if info := later.Info(); info.Ended || len(info.Args) != 3 || time.Since(info.Started) < 0 || info.Started.Sub(first.Info().Started).Abs() > time.Minute {
		t.Errorf("it is described as %+v", info)
	}
	if err := later.Forget(t.Context()); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("forgotten while it runs: %v", err)
	}
	if _, err := io.WriteString(later, "two\n"); err != nil {
		t.Fatal(err)
	}
	if err := other.CloseStdin(); err == nil {
		// Its output may come before or after that of the other input.
		if out := followed(t, other, fumehood.Stdout, 0); !strings.HasPrefix(out, "first\ngot one\n") {
			t.Errorf("it has printed %q", out)
		}
	} else {
		t.Error(err)
	}
	for _, p := range []fumehood.Process{later, other} {
		res, err := p.Wait(t.Context())
		if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 7 || !strings.HasPrefix(res.Stdout.Text(), "first\ngot one\n") || res.Stderr.Text() != "warned\n" {
			t.Errorf("got %+v, %v", res, err)
		}
		if got := followed(t, p, fumehood.Stdout, 3); !strings.HasPrefix(got, "st\ngot one\n") {
			t.Errorf("from 3 on came %q", got)
		}
	}
	if ended := rejoined(t, open(t, name, docker.Options{}), first.Info().ID); !ended.Info().Ended || followed(t, ended, fumehood.Stderr, 0) != "warned\n" {
		t.Errorf("after its end it is described as %+v", ended.Info())
	}
	if err := later.Forget(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.RefreshProcesses(t.Context()); err != nil || len(b.Processes()) != 0 || len(a.Processes()) != 0 {
		t.Errorf("still listed after it was forgotten: %v", err)
	}
	if err := other.Forget(t.Context()); err != nil {
		t.Errorf("forgotten twice: %v", err)
	}
}

func TestDetached_signalAndKill(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := keep(t, p, fumehood.Spec{Image: debian})
	script := map[string]string{
		"signal": `trap 'echo caught; exit 4' TERM; echo ready; while :; do sleep 0.05; done`,
		"kill":   `setsid sleep 1000 & sleep 1000 & wait`,
		"wall":   `sleep 1000`,
	}
	if d, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, Detach: true, Timeout: 200 * time.Millisecond}); err != nil {
		t.Error(err)
	} else if res, err := d.Wait(t.Context()); err != nil || res.Outcome != fumehood.TimedOut || res.ExitCode != -1 {
		t.Errorf("for the process that started it: %+v, %v", res, err)
	} else if res, err = rejoined(t, open(t, sb.Info().Name, docker.Options{}), d.Info().ID).Wait(t.Context()); err != nil || res.Outcome != fumehood.TimedOut {
		t.Errorf("for another process: %+v, %v", res, err)
	}
	ids := map[string]int{}
	for name, text := range script {
		cmd := fumehood.Cmd{Args: []string{"sh", "-c", text}, Detach: true}
		if name == "wall" {
			cmd.Timeout = 2 * time.Second
		}
		d, err := sb.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = d.Info().ID
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := open(t, sb.Info().Name, docker.Options{})
	d := rejoined(t, again, ids["signal"])
	for _, err := range d.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if err := d.Signal(t.Context(), 15); err != nil {
		t.Fatal(err)
	}
	if res, err := d.Wait(t.Context()); err != nil || res.ExitCode != 4 || res.Stdout.Text() != "ready\ncaught\n" {
		t.Errorf("signaled: %+v, %v", res, err)
	}
	d = rejoined(t, again, ids["kill"])
	if err := d.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := d.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || res.Leaked {
		t.Errorf("killed: %+v, %v", res, err)
	}
	d = rejoined(t, again, ids["wall"])
	if res, err := d.Wait(t.Context()); err != nil || res.Outcome != fumehood.TimedOut || res.Duration < 2*time.Second {
		t.Errorf("timeout in the kept sandbox: %+v, %v", res, err)
	}
	if n := says(t, again, "sh", "-c", `n=0; for f in /proc/[0-9]*/cmdline; do if tr '\0' ' ' <$f 2>/dev/null | grep -q '^sleep 1000'; then n=$((n+1)); fi; done; echo $n`); n != "0\n" {
		t.Errorf("%s of their descendants are alive", strings.TrimSpace(n))
	}
}

func TestResident_connectionEnds(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := keep(t, p, fumehood.Spec{Image: debian})
	name := sb.Info().Name
	holders := []fumehood.Sandbox{sb, open(t, name, docker.Options{}), open(t, name, docker.Options{})}
	for i, h := range holders {
		cmd := fumehood.Cmd{Args: []string{"sh", "-c", `echo up; exec sleep "$0"`, strconv.Itoa(2000 + i)}}
		attached, err := h.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range attached.Follow(t.Context(), fumehood.Stdout, 0) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if _, err := holders[1].Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "3000"}, Detach: true}); err != nil {
		t.Fatal(err)
	}
	last := open(t, name, docker.Options{})
	living := func() string {
		return says(t, last, "sh", "-c", `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f 2>/dev/null; echo; done | grep '^sleep [23]' | sort | tr -d '\n'`)
	}
	want := []string{"sleep 2001 sleep 2002 sleep 3000 ", "sleep 2002 sleep 3000 ", "sleep 3000 "}
	for i, h := range holders {
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		conformance.Eventually(t, "the connection's command has ended, and no other: "+want[i], func() bool { return living() == want[i] })
	}
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
		told, err := io.ReadAll(c)
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) || len(told) > 32 { // its challenge is not secret
			t.Errorf("a stranger received %d bytes, %v", len(told), err)
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
	kept, err := p.Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, k := range kept {
		if k.Name != name {
			continue
		}
		found = true
		s := k.Services[0]
		if k.States[s.Name] != "exited (137)" || s.Image != busybox || s.Container == "" || s.Dir != "/" || time.Until(k.Expires) > time.Hour || time.Until(k.Expires) < time.Hour/2 {
			t.Errorf("it is listed as %+v", k)
		}
	}
	if !found {
		t.Error("it is not listed")
	}
	if err := p.Logs(t.Context(), name, "", provider.LogOptions{}, func(fumehood.Stream, []byte) {}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("the log of the guest: %v", err)
	}
	// If another process starts the container, its guest waits in vain for a host that makes it the resident.
	if err := engineOf(t).StartContainer(t.Context(), compose.ContainerName(name)); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, name, docker.Options{}).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "its container was started again") {
		t.Errorf("started again: %v", err)
	}
}

func TestCleanup_expired(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	sb := keep(t, p, fumehood.Spec{Image: busybox, TTL: time.Hour})
	over := start(t, p, fumehood.Spec{Image: busybox, Keep: true, TTL: time.Nanosecond})
	p.OnlySandboxes(sb.Info().Name, over.Info().Name)
	conformance.Eventually(t, "the expired sandbox is removed", func() bool {
		if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
			t.Fatal(err)
		}
		return len(objectsOf(t, over.Info().Name)) == 0
	})
	if left := objectsOf(t, sb.Info().Name); len(left) != 1 {
		t.Errorf("objects of the other sandbox: %v", left)
	}
	if _, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, TTL: time.Hour}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("TTL of a sandbox that is not kept: %v", err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	const ttl = 5 * time.Second
	name := ""
	t.Cleanup(func() {
		if left := objectsOf(t, name); len(left) != 0 {
			t.Errorf("objects after its removal: %v", left)
		}
	})
	began := time.Now()
	name = keep(t, p, fumehood.Spec{Image: busybox, TTL: ttl}).Info().Name
	forever := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	p.OnlySandboxes(name, forever)
	expiry := func(name string) time.Time {
		t.Helper()
		all, err := newProvider(t, docker.Options{}).Kept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range all {
			if k.Name == name {
				return k.Expires
			}
		}
		t.Fatalf("%s is not kept", name)
		return time.Time{}
	}
	var until time.Time
	for _, more := range []time.Duration{time.Hour, 2 * time.Hour, time.Minute} { // never earlier than before
		next, err := newProvider(t, docker.Options{}).Renew(t.Context(), name, more)
		if err != nil {
			t.Fatal(err)
		}
		if next.Before(until) || !next.Equal(expiry(name)) || next.Before(began.Add(more-2*time.Second)) {
			t.Errorf("renewed for %v: until %v, listed %v, before %v", more, next, expiry(name), until)
		}
		until = next
	}
	if left := objectsOf(t, name); len(left) != 2 { // the container, and one renewal
		t.Errorf("objects: %v", left)
	}
	conformance.Eventually(t, "its first time is over", func() bool { return time.Since(began) > ttl+2*time.Second })
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := objectsOf(t, name); len(left) != 2 {
		t.Errorf("objects after a cleanup: %v", left)
	}
	if next, err := p.Renew(t.Context(), forever, time.Hour); err != nil || !next.IsZero() || !expiry(forever).IsZero() {
		t.Errorf("renewed what does not expire: %v, %v", next, err)
	}
	if _, err := p.Renew(t.Context(), "unknown", time.Hour); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("renewed what there is not: %v", err)
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
	for _, d := range last.Processes() {
		if res, err := d.Wait(t.Context()); err != nil || len(res.Stdout.Bytes) != 10_000 || res.Stdout.Total != 3_000_000 {
			t.Errorf("%+v, %v", res, err)
		}
		at := int64(-1)
		for c, err := range d.Follow(t.Context(), fumehood.Stdout, 5) {
			if err != nil {
				t.Fatal(err)
			}
			if at < 0 {
				at = c.Offset
			}
		}
		if at != 3_000_000-10_000 {
			t.Errorf("what is kept begins at %d", at)
		}
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
	if err != nil || c.Container != name+"-"+compose.DefaultService+"-1" {
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
	if res, err := proc.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost {
		t.Fatalf("got %+v, %v", res, err)
	}
	if err := proc.Kill(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("killed although the connection is broken: %v", err)
	}
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

func TestDetached_writeAfterEnd(t *testing.T) {
	t.Parallel()
	sb := keep(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	for name, script := range map[string]string{"it has ended": "true", "it ends meanwhile": "read x"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, Detach: true, StdinPipe: true})
			if err != nil {
				t.Fatal(err)
			}
			if script == "true" {
				if _, err := proc.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			later := rejoined(t, open(t, sb.Info().Name, docker.Options{}), proc.Info().ID)
			written := make(chan error, 1)
			go func() {
				_, err := later.Write(bytes.Repeat([]byte("x\n"), 4<<20))
				written <- err
			}()
			select {
			case err := <-written:
				if !errors.Is(err, fumehood.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("the write did not return")
			}
		})
	}
}

func TestDetached_viaEngine(t *testing.T) {
	t.Parallel()
	sb := keep(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, Detach: true, ViaEngine: true}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
