package docker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

// udpEcho answers each datagram with the number of bytes received from its sender so far, followed by the datagram.
const udpEcho = `
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
had = {}
while True:
    d, who = s.recvfrom(65535)
    had[who] = had.get(who, 0) + len(d)
    s.sendto((b"%d " % had[who] + d)[:65507], who)
`

// askUDP sends a datagram and returns the answer, or nothing if none arrives in time.
func askUDP(t *testing.T, conn net.Conn, datagram []byte, within time.Duration) []byte {
	t.Helper()
	if _, err := conn.Write(datagram); err != nil {
		t.Error(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 1<<16)
	n, err := conn.Read(answer)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	return answer[:n]
}

func dialUDP(t *testing.T, p fumehood.Port) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(p.Address, fmt.Sprint(p.Host))) //nolint:noctx // it waits for nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestForward_udp(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	sb := start(t, newProvider(t, docker.Options{Logger: log}), fumehood.Spec{Compose: project(t, strings.Replace(`
services:
  default: {image: fumehood-test/python, command: sleep infinity, ports: ["53:5353/udp", "54/udp", "5353/tcp"]}
  echo:
    image: fumehood-test/python
    user: nobody
    command: [python3, -c, ECHO, "::", "7000"]
    ports: ["7000/udp"]
`, "ECHO", strconv.Quote(udpEcho), 1))})
	at := map[string]fumehood.Port{}
	for _, name := range []string{"default", "echo"} {
		svc, err := sb.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := svc.Connection(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range conn.Ports {
			if p.Address != "127.0.0.1" || p.Host == 0 {
				t.Errorf("got %+v", p)
			}
			at[fmt.Sprintf("%s %d/%s", name, p.Container, p.Protocol)] = p
		}
	}
	if len(at) != 4 || at["default 5353/udp"].Host == 53 || at["default 5353/tcp"].Host == 0 {
		t.Fatalf("got %+v", at)
	}

	// Concurrent clients each get their own answers. Datagrams stay intact, including empty ones.
	conformance.Eventually(t, "the server answers", func() bool { return len(askUDP(t, dialUDP(t, at["echo 7000/udp"]), []byte("up?"), time.Second)) > 0 })
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			conn, sum := dialUDP(t, at["echo 7000/udp"]), 0
			large := 100 * (i + 1)
			if i == 0 {
				large = 60000 // sending more at once would overflow the server's socket buffer
			}
			for _, size := range []int{1, 0, large, 0, 3} {
				datagram := bytes.Repeat([]byte{byte('a' + i)}, size)
				sum += size
				if got, want := askUDP(t, conn, datagram, time.Minute), fmt.Appendf(nil, "%d %s", sum, datagram); !bytes.Equal(got, want) {
					t.Errorf("client %d: got %d bytes, %.20q, want %d, %.20q", i, len(got), got, len(want), want)
				}
			}
		})
	}
	clients.Wait()

	// Without a listener, datagrams are lost. Later ones reach a listener that has started since, also on the loopback
	// address.
	conn := dialUDP(t, at["default 5353/udp"])
	if got := askUDP(t, conn, []byte("nobody"), 500*time.Millisecond); len(got) != 0 {
		t.Errorf("nobody says %q", got)
	}
	serve := func(args ...string) fumehood.Process {
		p, err := sb.Start(t.Context(), fumehood.Cmd{Args: slices.Concat([]string{"python3", "-c", udpEcho}, args)})
		if err != nil {
			t.Fatal(err)
		}
		conformance.Eventually(t, "it answers", func() bool { return len(askUDP(t, conn, []byte("x"), time.Second)) > 0 })
		return p
	}
	first := serve("127.0.0.1", "5353")
	if err := first.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := first.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if got := askUDP(t, conn, []byte("gone"), 500*time.Millisecond); len(got) != 0 {
		t.Errorf("nobody says %q", got)
	}
	serve("127.0.0.1", "5353") // datagrams of the same client arrive again
}

// tcpEcho echoes what a client sends until the client closes its sending side.
const tcpEcho = `
import socket, threading
s = socket.create_server(("127.0.0.1", 8000))
def serve(c):
    while d := c.recv(65536):
        c.sendall(d)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// echoed returns the echo of a text, or "" while there is no listener.
func echoed(t *testing.T, p fumehood.Port, text string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(p.Address, fmt.Sprint(p.Host)), 10*time.Second) //nolint:noctx // bounded
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err == nil {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	got, _ := io.ReadAll(conn) // a connection without a listener inside is closed
	return string(got)
}

func TestForward_withoutNetwork(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	kept := keep(t, p, fumehood.Spec{Image: "fumehood-test/python"})
	if _, err := kept.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", tcpEcho}, Detach: true}); err != nil {
		t.Fatal(err)
	}
	for name, sb := range map[string]fumehood.Sandbox{"its own process": kept, "another one": open(t, kept.Info().Name, docker.Options{})} {
		got, err := sb.Forward(t.Context(), fumehood.Port{Container: 8000})
		if err != nil || got.Address != "127.0.0.1" || got.Host == 0 || got.Container != 8000 || got.Protocol != fumehood.ProtocolTCP {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		conformance.Eventually(t, "the server answers", func() bool { return echoed(t, got, "hello") == "hello" })
		if conn, err := sb.Connection(t.Context()); err != nil || !slices.Contains(conn.Ports, got) {
			t.Errorf("%s: %+v, %v", name, conn.Ports, err)
		}
		if _, err := sb.Forward(t.Context(), fumehood.Port{Container: 8000, Host: got.Host}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s, port in use: %v", name, err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if conn, err := net.Dial("tcp", net.JoinHostPort(got.Address, fmt.Sprint(got.Host))); err == nil { //nolint:noctx // refused at once
			t.Errorf("%s: still listens after the close", name)
			conn.Close()
		}
		if _, err := sb.Forward(t.Context(), fumehood.Port{Container: 8000}); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("%s, after its end: %v", name, err)
		}
	}
}

func TestService_Dial(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	t.Run("no network", func(t *testing.T) {
		t.Parallel()
		conformance.CheckDial(t, start(t, p, fumehood.Spec{Image: "fumehood-test/python"}))
	})
	t.Run("project", func(t *testing.T) {
		t.Parallel()
		conformance.CheckDial(t, start(t, p, fumehood.Spec{Compose: project(t, `services: {default: {image: fumehood-test/python, command: sleep infinity, user: nobody}}`)}))
	})
	t.Run("unsupported", func(t *testing.T) {
		t.Parallel()
		sb := start(t, newProvider(t, docker.Options{Transport: docker.TransportEngine}), fumehood.Spec{Image: busybox})
		_, err := sb.Dial(t.Context(), 8000)
		conformance.WantError(t, err, fumehood.ErrUnsupported)
	})
}

func TestForward_rejected(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{Transport: docker.TransportEngine}), fumehood.Spec{Image: busybox})
	for _, c := range []struct {
		port  fumehood.Port
		class error
	}{
		{fumehood.Port{Container: 8000}, fumehood.ErrUnsupported},
		{fumehood.Port{}, fumehood.ErrConfig},
		{fumehood.Port{Container: 1 << 16}, fumehood.ErrConfig},
		{fumehood.Port{Container: 1, Host: -1}, fumehood.ErrConfig},
		{fumehood.Port{Container: 1, Protocol: "sctp"}, fumehood.ErrConfig},
	} {
		if got, err := sb.Forward(t.Context(), c.port); !errors.Is(err, c.class) {
			t.Errorf("%+v: %+v, %v", c.port, got, err)
		}
	}
}

func TestForward_completedService(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, `
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, depends_on: {setup: {condition: service_completed_successfully}}}
  setup: {image: fumehood-test/busybox, command: [sh, -c, "exit 0"], ports: ["80", "81"]}
`)})
	if got := sh(t, sb, "echo up"); got != "up" {
		t.Errorf("it says %q", got)
	}
}
