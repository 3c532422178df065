package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

func listen(t *testing.T) (net.Listener, error) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	return QuietListener(l), err
}

// pipe returns both ends of a connection, of which the second has been accepted by Listen.
func pipe(t *testing.T) (client *net.UnixConn, server net.Conn, err error) {
	t.Helper()
	l, err := listen(t)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	if server, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	if _, is := server.(*conn); !is {
		t.Errorf("got a %T", server)
	}
	return c.(*net.UnixConn), server, nil
}

// nettest tests the first connection, with the second as its peer.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c2, c1, err = pipe(t)
		return c1, c2, func() { c1.Close(); c2.Close() }, err
	})
}

func TestConn_closeWrite(t *testing.T) {
	client, server, err := pipe(t)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := server.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
		t.Errorf("the client reads %q, %v", rest, err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var got [1]byte
	if _, err := io.ReadFull(server, got[:]); err != nil || got[0] != 'x' {
		t.Errorf("read %q, %v", got, err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = server.Read(got[:])
	if op := (*net.OpError)(nil); !errors.As(err, &op) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after the end: %v", err)
	}
}

// A request ends when its client is gone, also while the answer blocks.
func TestListen_clientGone(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"before the answer": func(http.ResponseWriter) {},
		"in the answer": func(w http.ResponseWriter) {
			for err := error(nil); err == nil; {
				_, err = w.Write(bytes.Repeat([]byte("x"), 64<<10))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := listen(t)
			if err != nil {
				t.Fatal(err)
			}
			began, ended := make(chan struct{}), make(chan struct{})
			s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				close(began)
				answer(w)
				<-r.Context().Done()
			})}
			served := make(chan struct{})
			go func() {
				defer close(served)
				_ = s.Serve(l) // until Close
			}()
			defer func() { s.Close(); <-served }()
			client, err := (&net.Dialer{}).DialContext(t.Context(), "unix", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			<-began
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the request goes on")
			}
		})
	}
}
