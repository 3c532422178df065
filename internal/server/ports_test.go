package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// dialing is a provider whose sandboxes have the ports of this machine.
type dialing struct{ fumehood.Provider }

func (p dialing) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	sb, err := p.Provider.Start(ctx, spec)
	return dialingSandbox{sb}, err
}

type dialingSandbox struct{ fumehood.Sandbox }

func (dialingSandbox) Dial(ctx context.Context, port int) (fumehood.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, &fumehood.Error{Op: "connect", Class: fumehood.ErrUnavailable, Err: err}
	}
	return conn.(*net.TCPConn), nil
}

// servePorts starts a server whose sandboxes have the ports of this machine.
func servePorts(t *testing.T, opts Options) *served {
	t.Helper()
	c := serve(t, opts)
	open := c.opts.Open
	c.opts.Open = func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
		p, err := open(ctx, report)
		return dialing{p}, err
	}
	return c
}

// program listens on a port of this machine, and runs serve for each connection.
func program(t *testing.T, serve func(*net.TCPConn)) (port int) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// echo sends back what it gets, and ends when that ends.
func echo(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

// framed is a client's end of a stream.
type framed struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

// upgrade sends the request for a stream over a connection, and returns the stream, or the answer that refuses it.
func (c *served) upgrade(conn net.Conn, path string, headers ...string) (s *framed, status int, refused string) {
	c.t.Helper()
	c.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	head := append([]string{
		"GET " + path + " HTTP/1.1", "Host: localhost", "Fumehood-Lease: " + c.lease, "Connection: keep-alive, Upgrade", "Upgrade: " + streamProtocol,
	}, headers...)
	if _, err := io.WriteString(conn, strings.Join(head, "\r\n")+"\r\n\r\n"); err != nil {
		c.t.Fatal(err)
	}
	s = &framed{c.t, conn, bufio.NewReader(conn)}
	answer, err := http.ReadResponse(s.answers, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Upgrade"); answer.StatusCode == http.StatusSwitchingProtocols {
		if got != streamProtocol {
			c.t.Errorf("upgraded to %q", got)
		}
		return s, answer.StatusCode, ""
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Error(err)
	}
	return nil, answer.StatusCode, string(body)
}

// stream opens a stream that must open.
func (c *served) stream(path string) *framed {
	c.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(c.t.Context(), "unix", c.path)
	if err != nil {
		c.t.Fatal(err)
	}
	s, status, refused := c.upgrade(conn, path)
	if s == nil {
		c.t.Fatal(status, refused)
	}
	return s
}

// send sends a frame. No data is the end.
func (s *framed) send(data []byte) error {
	_, err := s.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)) //nolint:gosec // small
	return err
}

// receive returns what comes until the end of the direction, or why the stream broke.
func (s *framed) receive() ([]byte, error) {
	var all []byte
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(s.answers, head[:]); err != nil {
			return all, err
		}
		size := binary.BigEndian.Uint32(head[:])
		if size == 0 {
			return all, nil
		}
		if size > frameSize {
			s.t.Errorf("a frame of %d bytes", size)
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(s.answers, data); err != nil {
			return all, err
		}
		all = append(all, data...)
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	c := servePorts(t, Options{})
	path := fmt.Sprintf("%s/ports/%d", c.box(), program(t, echo))
	dir, pair := t.TempDir(), httptest.NewUnstartedServer(nil)
	pair.StartTLS() // for its certificate
	defer pair.Close()
	data := make([]byte, 5<<20)
	_, _ = rand.Read(data) // it never fails
	for name, over := range map[string]func(net.Listener) net.Listener{
		"unix":  func(l net.Listener) net.Listener { return l },
		"quiet": QuietListener,
		"TLS": func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{Certificates: pair.TLS.Certificates, MinVersion: tls.VersionTLS12})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: time.Minute}
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = server.Serve(over(l)) // until Close
			}()
			defer func() { server.Close(); <-served }()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if name == "TLS" {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is this test's
			}
			s, status, refused := c.upgrade(conn, path)
			if s == nil {
				t.Fatal(status, refused)
			}
			sent := make(chan error, 1)
			go func() { // a large frame, a small one, and the end
				sent <- errors.Join(s.send(data[1:]), s.send(data[:1]), s.send(nil))
			}()
			got, err := s.receive()
			if want := append(bytes.Clone(data[1:]), data[0]); err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			if n, err := s.answers.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("after both ends: %d bytes, %v", n, err)
			}
		})
	}
	eventually(t, "no stream is counted", func() bool { return c.streams.Load() == 0 })
}

// Either side may end its direction first, and the other one goes on.
func TestPorts_halfClosed(t *testing.T) {
	t.Parallel()
	c := servePorts(t, Options{})
	box, heard := c.box(), make(chan string, 1)
	first := program(t, func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "all")
		_ = conn.CloseWrite()
		text, _ := io.ReadAll(conn)
		heard <- string(text)
	})
	s := c.stream(fmt.Sprintf("%s/ports/%d", box, first))
	if got, err := s.receive(); err != nil || string(got) != "all" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := errors.Join(s.send([]byte("later")), s.send(nil)); err != nil {
		t.Error(err)
	}
	if got := <-heard; got != "later" {
		t.Errorf("the program got %q", got)
	}
	last := program(t, func(conn *net.TCPConn) {
		text, _ := io.ReadAll(conn)
		_, _ = io.WriteString(conn, "got "+string(text))
	})
	s = c.stream(fmt.Sprintf("%s/ports/%d", box, last))
	if err := errors.Join(s.send([]byte("it")), s.send(nil)); err != nil {
		t.Error(err)
	}
	if got, err := s.receive(); err != nil || string(got) != "got it" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A client that ends without the frames of the end is gone, also after it has ended its own direction.
func TestPorts_clientGone(t *testing.T) {
	t.Parallel()
	c := servePorts(t, Options{})
	box, ended := c.box(), make(chan struct{}, 1)
	port := program(t, func(conn *net.TCPConn) { // it ignores the end of what it reads
		_, _ = io.Copy(io.Discard, conn)
		for err := error(nil); err == nil; {
			_, err = conn.Write(make([]byte, 1<<16)) // it blocks while the client is there, which reads nothing
		}
		ended <- struct{}{}
	})
	for name, leave := range map[string]func(*framed) error{
		"at once":              func(*framed) error { return nil },
		"in a frame's head":    func(s *framed) error { _, err := s.Write([]byte{0, 0}); return err },
		"in a frame":           func(s *framed) error { _, err := s.Write([]byte{0, 0, 0, 2, 'x'}); return err },
		"after its direction":  func(s *framed) error { return s.send(nil) },
		"with more than ended": func(s *framed) error { return errors.Join(s.send(nil), s.send([]byte("x"))) },
	} {
		s := c.stream(fmt.Sprintf("%s/ports/%d", box, port))
		if err := leave(s); err != nil {
			t.Error(err)
		}
		if name != "with more than ended" {
			s.Close()
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the program has a connection", name)
		}
	}
	eventually(t, "no stream is counted", func() bool { return c.streams.Load() == 0 })
}

// A client that ends is gone, also while its data waits for a program that reads nothing.
func TestPorts_programReadsNothing(t *testing.T) {
	t.Parallel()
	c := servePorts(t, Options{})
	end := make(chan struct{})
	defer close(end)
	path := fmt.Sprintf("%s/ports/%d", c.box(), program(t, func(*net.TCPConn) { <-end }))
	for name, over := range map[string]func(net.Listener) net.Listener{"unix": func(l net.Listener) net.Listener { return l }, "quiet": QuietListener} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: time.Minute}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(over(l)) // until Close
		}()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, status, refused := c.upgrade(conn, path)
		if s == nil {
			t.Fatal(status, refused)
		}
		if err := s.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		for err == nil { // until all buffers are full
			err = s.send(make([]byte, 1<<20))
		}
		s.Close()
		eventually(t, name+": no stream is counted", func() bool { return c.streams.Load() == 0 })
		server.Close()
		<-served
	}
}

// A program that breaks its connection, a lease that ends and a server that stops break the stream, which has no end then.
func TestPorts_broken(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *served, conn *net.TCPConn){
		"program": func(_ *served, conn *net.TCPConn) {
			_ = conn.SetLinger(0)
			_ = conn.Close()
		},
		"lease":  func(c *served, _ *net.TCPConn) { c.ok("DELETE", "/v1/leases/"+c.lease, nil, nil) },
		"server": func(c *served, _ *net.TCPConn) { c.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := servePorts(t, Options{})
			connected := make(chan *net.TCPConn)
			over := make(chan struct{})
			port := program(t, func(conn *net.TCPConn) {
				_, _ = io.WriteString(conn, "part")
				connected <- conn
				_, _ = io.Copy(io.Discard, conn)
				close(over)
			})
			s := c.stream(fmt.Sprintf("%s/ports/%d", c.box(), port))
			conn := <-connected
			began := make([]byte, frameHead+len("part"))
			if _, err := io.ReadFull(s.answers, began); err != nil {
				t.Fatal(err)
			}
			end(c, conn)
			if got, err := s.receive(); err == nil || len(got) > 0 {
				t.Errorf("got %q, %v", got, err)
			}
			<-over
			if n := c.streams.Load(); name != "program" && n != 0 {
				t.Errorf("%d streams are left", n)
			}
		})
	}
}

func TestPorts_errors(t *testing.T) {
	t.Parallel()
	c := servePorts(t, Options{Limits: Limits{Streams: 1}})
	box, port := c.box(), program(t, echo)
	path := fmt.Sprintf("%s/ports/%d", box, port)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := l.Addr().(*net.TCPAddr).Port
	l.Close()
	refused := func(status int, code fumehood.Code, path string, headers ...string) {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", c.path)
		if err != nil {
			t.Fatal(err)
		}
		s, got, body := c.upgrade(conn, path, headers...)
		if s != nil || got != status || !strings.Contains(body, `"class":"`+string(code)+`"`) {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
	refused(http.StatusNotFound, fumehood.CodeUnavailable, fmt.Sprintf("%s/ports/%d", box, silent))
	refused(http.StatusNotFound, api.CodeSandboxNotFound, "/v1/sandboxes/missing/ports/80")
	refused(http.StatusUnprocessableEntity, fumehood.CodeConfig, box+"/ports/0")
	refused(http.StatusUnprocessableEntity, fumehood.CodeConfig, box+"/ports/65536")
	refused(http.StatusUnprocessableEntity, fumehood.CodeConfig, path+"?user=root")
	refused(http.StatusBadRequest, fumehood.CodeConfig, path+"?service=missing")
	refused(http.StatusForbidden, fumehood.CodePermission, path, "Origin: http://localhost")
	s := c.stream(path)
	refused(http.StatusTooManyRequests, fumehood.CodeLimit, path)
	if _, metrics := c.answer("GET", "/metrics", nil); !strings.Contains(string(metrics), "fumehood_streams 1\n") {
		t.Errorf("the metrics are\n%s", metrics)
	}
	s.Close()
	eventually(t, "no stream is counted", func() bool { return c.streams.Load() == 0 })
	c.stream(path)

	for _, headers := range [][]string{{}, {"Upgrade", streamProtocol}, {"Connection", "Upgrade", "Upgrade", "websocket"}} {
		resp := c.send("GET", path, nil, headers...)
		if got := resp.Header.Get("Upgrade"); resp.StatusCode != http.StatusUpgradeRequired || got != streamProtocol {
			t.Errorf("%q: %s, upgrade %q", headers, resp.Status, got)
		}
		resp.Body.Close()
	}
	c.fails(http.StatusUpgradeRequired, fumehood.CodeConfig, "GET", path, nil)
	local := serve(t, Options{})
	local.fails(http.StatusUnprocessableEntity, fumehood.CodeUnsupported, "GET", local.box()+"/ports/80", nil)
}

// An open stream is use of its sandbox.
func TestPorts_idle(t *testing.T) {
	t.Parallel()
	const idle = time.Second
	c := servePorts(t, Options{})
	box := c.start(fmt.Sprintf("idle_ms=%d", idle/time.Millisecond))
	s := c.stream(fmt.Sprintf("%s/ports/%d", box, program(t, echo)))
	began := time.Now()
	eventually(t, "three idle times pass without a call", func() bool { return time.Since(began) > 3*idle })
	if err := errors.Join(s.send([]byte("hello")), s.send(nil)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.receive(); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	eventually(t, "it is removed", func() bool { return c.idled(box, "1s") })
}
