//go:build linux && (amd64 || arm64)

package native_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// needNetwork skips t where sandboxes cannot have a network.
func needNetwork(t *testing.T) {
	t.Helper()
	need(t)
	tier.Program(t, tier.CI, "slirp4netns")
}

var bridge = fumehood.Network{Mode: fumehood.NetworkBridge}

// Addresses of the host and of another machine, in network namespaces of their own.
const (
	hostAddress  = "100.64.7.1" // at the default route's interface
	innerAddress = "172.30.9.1" // at another interface
	neighbor     = "100.64.7.2" // the gateway
	remote       = "198.51.100.7"
	metadata     = "169.254.169.254"
	sitePort     = "7001"
	siteVar      = "FUMEHOOD_TEST_SITE"
)

// TestNetwork_reach runs a host with a provider in a network namespace, and another machine in another one, so that it does
// not depend on what this machine can reach.
func TestNetwork_reach(t *testing.T) {
	t.Parallel()
	needNetwork(t)
	inSite(t, func(t *testing.T) { testReach(t, reach) })
}

// inSite runs test on the host.
func inSite(t *testing.T, test func(t *testing.T)) {
	switch os.Getenv(siteVar) {
	case "host":
		asHost(t, test)
		return
	case "machine":
		in := bufio.NewReader(os.Stdin)
		_, err := in.ReadString('\n') // it has its addresses
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{neighbor, remote, metadata} {
			greet(t, at+":"+sitePort, "machine")
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, in) // until the host ends
		return
	}
	tier.Program(t, tier.CI, "ip")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), siteVar+"=host")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	tier.Again(t, cmd)
}

// asHost starts the other machine and makes the networks.
func asHost(t *testing.T, test func(t *testing.T)) {
	machine := exec.CommandContext(context.WithoutCancel(t.Context()), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	machine.Env = append(os.Environ(), siteVar+"=machine")
	machine.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	in, err := machine.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := machine.StdoutPipe()
	if err == nil {
		err = machine.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := machine.Wait(); err != nil {
			t.Error(err)
		}
	})
	pid := fmt.Sprint(machine.Process.Pid)
	inside := "nsenter -t " + pid + " -n "
	for _, line := range []string{
		"ip link set lo up",
		"ip link add out0 type veth peer name in0 netns " + pid,
		"ip address add " + hostAddress + "/24 dev out0",
		"ip link set out0 up",
		inside + "ip link set lo up",
		inside + "ip address add " + neighbor + "/24 dev in0",
		inside + "ip address add " + remote + "/32 dev lo",
		inside + "ip address add " + metadata + "/32 dev lo",
		inside + "ip link set in0 up",
		"ip route add default via " + neighbor,
		"ip link add inner0 type bridge",
		"ip address add " + innerAddress + "/24 dev inner0",
		"ip link set inner0 up",
	} {
		f := strings.Fields(line)
		if text, err := exec.CommandContext(t.Context(), f[0], f[1:]...).CombinedOutput(); err != nil { //nolint:gosec // fixed
			t.Fatalf("%s: %v: %s", line, err, text)
		}
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" { // others are of the test's framework
	}
	if lines.Err() != nil || lines.Text() != "ready" {
		t.Fatalf("the machine is not ready: %q, %v", lines.Text(), lines.Err())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the machine
	test(t)
}

// greet answers every TCP connection and every datagram with a text, and returns how many there were.
func greet(t *testing.T, at, text string) *atomic.Int64 {
	t.Helper()
	var count atomic.Int64
	l, err := net.Listen("tcp4", at) //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			_, _ = io.WriteString(c, text)
			c.Close()
		}
	}()
	u, err := net.ListenPacket("udp4", at) //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			_, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			count.Add(1)
			_, _ = u.WriteTo([]byte(text), from)
		}
	}()
	return &count
}

// names starts a DNS server at the loopback address, and makes it the host's name server.
func names(t *testing.T, name string, is netip.Addr) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	err := os.WriteFile(file, []byte("nameserver 127.0.0.1\n"), 0o644) //nolint:gosec // every user may read it
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/etc/resolv.conf", unix.MNT_DETACH) }) // in a namespace of its own
	u, err := net.ListenPacket("udp4", "127.0.0.1:53")                          //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			switch q := m.Questions[0]; {
			case q.Name.String() != name+".":
				m.RCode = dnsmessage.RCodeNameError
			case q.Type == dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: is.As4()}}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = u.WriteTo(answer, from)
			}
		}
	}()
}

// attempts prints what happens to a connection and to a datagram, for each address, port and device. A socket is bound to
// the device, unless it is "-".
const attempts = `
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def outcome(where, port, device, kind):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(1)
    try:
        if device != "-": s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        s.connect((where, int(port)))
        if kind == socket.SOCK_DGRAM: s.send(b"x")
        return s.recv(100).decode()
    except OSError as e:
        return type(e).__name__
def both(attempt):
    a = attempt.split(" ")
    return attempt + ": " + outcome(*a, socket.SOCK_STREAM) + " " + outcome(*a, socket.SOCK_DGRAM)
with ThreadPoolExecutor(max_workers=100) as pool:
    for line in pool.map(both, sys.argv[1:]): print(line)
`

// try makes attempts in a sandbox, and returns a line for each.
func try(t *testing.T, svc fumehood.Service, each []string) []string {
	t.Helper()
	res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: append([]string{"python3", "-c", attempts}, each...)})
	if err != nil || !res.Success() {
		t.Fatalf("%+v, %v", res, err)
	}
	lines := strings.Split(strings.TrimSpace(res.Stdout.Text()), "\n")
	if len(lines) != len(each) {
		t.Fatalf("%d lines for %d attempts", len(lines), len(each))
	}
	return lines
}

// testReach makes the host, and runs a test of sandboxes there.
func testReach(t *testing.T, sandboxes func(t *testing.T)) {
	count := greet(t, ":"+sitePort, "host")
	names(t, "remote.example", netip.MustParseAddr(remote))
	for _, where := range []string{remote, metadata} { // or the attempts below prove nothing
		c, err := net.DialTimeout("tcp", net.JoinHostPort(where, sitePort), 10*time.Second) //nolint:noctx // bounded
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	sandboxes(t)
	if n := count.Load(); n != 0 {
		t.Errorf("%d connections and datagrams have reached the host", n)
	}
}

func reach(t *testing.T) {
	p := newProvider(t, native.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian, Network: bridge})
	other := start(t, p, fumehood.Spec{Image: debian, Network: bridge, Ports: []fumehood.Port{{Container: 7002}}})
	conn, err := other.Connection(t.Context())
	if err != nil || len(conn.Ports) != 1 {
		t.Fatalf("%+v, %v", conn, err)
	}
	published := fmt.Sprint(conn.Ports[0].Host)
	if _, err := other.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", server, "0.0.0.0", "7002"}}); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the other sandbox answers", func() bool { return askTCP(conn.Ports[0]) == "echo" })

	var open, shut []string
	for _, where := range []string{remote, neighbor, "remote.example"} {
		open = append(open, where+" "+sitePort+" -")
	}
	const group = "224.0.0.1"
	for _, where := range []string{
		hostAddress, innerAddress, "172.30.9.7", group, "127.0.0.1", "127.1.2.3", "0.0.0.0", "255.255.255.255", "10.201.0.2", "10.201.0.3",
		"10.201.0.100", "10.201.7.7", metadata, "missing.example",
	} {
		if where == group && os.Geteuid() != 0 { // nothing keeps it inside without root: SECURITY.md
			continue
		}
		for _, port := range []string{sitePort, published, "7002"} {
			shut = append(shut, where+" "+port+" -", where+" "+port+" eth0", where+" "+port+" lo")
		}
	}
	for _, line := range try(t, sb, open) {
		if !strings.HasSuffix(line, ": machine machine") {
			t.Error(line)
		}
	}
	for _, line := range try(t, sb, shut) {
		if strings.Contains(line, "host") || strings.Contains(line, "machine") || strings.Contains(line, "echo") {
			t.Error(line)
		}
	}
	if got := run(t, sb, "python3 -c '"+reconfigure+"'"); got != "EPERM EPERM EPERM" {
		t.Errorf("changes of the network: %s", got)
	}
	testFlood(t, sb, other)
}

// flood sends datagrams from many sockets, again and again: the interface drops what comes too fast.
const flood = `
import itertools, socket, sys, time
all = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for i in range(2500)]
for i, s in enumerate(itertools.cycle(all)):
    if i % 100 == 99: time.sleep(0.005)
    s.sendto(b"x", (sys.argv[1], 9))
`

// testFlood checks that one sandbox cannot take the ports of the host.
func testFlood(t *testing.T, sb, other fumehood.Sandbox) {
	t.Helper()
	flooding, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", flood, remote}})
	if err != nil {
		t.Fatal(err)
	}
	folder := fmt.Sprintf("/proc/%d/fd", helperOf(t, sb))
	descriptors := func() int {
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Error(err)
		}
		return len(files)
	}
	conformance.Eventually(t, "the helper has its 1,024 descriptors", func() bool { return descriptors() >= 1000 })
	if err := flooding.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if n := descriptors(); n > 1024 {
		t.Errorf("%d descriptors", n)
	}
	for _, sb := range []fumehood.Sandbox{sb, other} {
		if err := sb.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := try(t, other, []string{remote + " " + sitePort + " -"}); !strings.HasSuffix(got[0], ": machine machine") {
		t.Error(got)
	}
}

// reconfigure prints what happens if a program sets flags, address and routes (SIOCSIFFLAGS, SIOCSIFADDR, SIOCDELRT).
const reconfigure = `
import errno, fcntl, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def outcome(call):
    try: fcntl.ioctl(s, call, b"eth0".ljust(128, b"\0"))
    except OSError as e: return errno.errorcode[e.errno]
print(outcome(0x8914), outcome(0x8916), outcome(0x890C))
`
