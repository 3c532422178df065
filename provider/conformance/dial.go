package conformance

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
)

// dialed serves connections on ports of the loopback address: 8000 sends back what it gets, 8001 sends a word and its end,
// and then waits for the end of what it gets, 8002 resets the connection in the middle, and 8003 says nothing.
const dialed = `
import socket, struct, threading, time
def echo(c):
    while d := c.recv(65536):
        c.sendall(d)
def first(c):
    c.sendall(b"word")
    c.shutdown(socket.SHUT_WR)
    with open("/tmp/heard", "ab") as f:
        while d := c.recv(65536):
            f.write(d)
            f.flush()
        f.write(b"end")
def reset(c):
    c.sendall(b"part")
    c.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
def silent(c):
    time.sleep(600)
def run(f, c):
    with c:
        f(c)
def serve(s, f):
    while True:
        threading.Thread(target=run, args=(f, s.accept()[0]), daemon=True).start()
sockets = [socket.create_server(("127.0.0.1", 8000 + n), backlog=200) for n in range(4)]
for s, f in zip(sockets, (echo, first, reset, silent)):
    threading.Thread(target=serve, args=(s, f), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
`

// CheckDial checks Service.Dial with a sandbox that has python3. It closes the sandbox.
func CheckDial(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	for port, class := range map[int]error{8000: fumehood.ErrUnavailable, 0: fumehood.ErrConfig, 1 << 16: fumehood.ErrConfig, -1: fumehood.ErrConfig} {
		conn, err := sb.Dial(t.Context(), port)
		if WantError(t, err, class); conn != nil {
			t.Errorf("port %d: a connection", port)
		}
	}
	p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", dialed}, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range p.Events() {
		if err != nil || ev.Result != nil || !strings.HasPrefix(string(ev.Data), "ready") {
			t.Fatalf("%+v, %v", ev, err)
		}
		break
	}
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() { dialEcho(t, sb, fmt.Sprint("hello ", n)) })
	}
	all.Wait()
	dialHalf(t, sb)
	conn := dial(t, sb, 8002)
	if _, err := io.ReadFull(conn, make([]byte, len("part"))); err != nil {
		t.Error(err)
	}
	_, _ = conn.Write([]byte("x"))
	if rest, err := io.ReadAll(conn); err == nil || len(rest) > 0 {
		t.Errorf("after a reset: %q, %v", rest, err)
	}
	_ = conn.Close()

	conn = dial(t, sb, 8003)
	dialBroken(t, conn, func() error { // while it is read
		_, err := conn.Read(make([]byte, 1))
		return err
	}, func() { _ = conn.Close() })
	conn = dial(t, sb, 8003)
	dialBroken(t, conn, func() (err error) { // while it is written to, and nothing is read
		for err == nil {
			_, err = conn.Write(make([]byte, 1<<16))
		}
		return err
	}, func() {
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	_, err = sb.Dial(t.Context(), 8000)
	WantError(t, err, fumehood.ErrUnavailable)
}

func dial(t *testing.T, svc fumehood.Service, port int) fumehood.Conn {
	t.Helper()
	conn, err := svc.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// dialEcho checks that what is written comes back, and that its end does.
func dialEcho(t *testing.T, svc fumehood.Service, text string) {
	t.Helper()
	conn, err := svc.Dial(t.Context(), 8000)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	err = errors.Join(err, conn.CloseWrite())
	got, rerr := io.ReadAll(conn)
	if err := errors.Join(err, rerr); err != nil || string(got) != text {
		t.Errorf("got %q, %v", got, err)
	}
}

// dialHalf checks that a program may end its direction first.
func dialHalf(t *testing.T, svc fumehood.Service) {
	t.Helper()
	conn := dial(t, svc, 8001)
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "word" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := io.WriteString(conn, "later ")
	if err := errors.Join(err, conn.CloseWrite()); err != nil {
		t.Error(err)
	}
	Eventually(t, "the program has it all", func() bool { return sh(t, svc, "cat /tmp/heard") == "later end" })
}

// dialBroken checks that a connection that is used breaks.
func dialBroken(t *testing.T, conn fumehood.Conn, use func() error, end func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- use() }()
	end()
	if err := <-ended; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
