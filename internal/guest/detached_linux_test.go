package guest

import (
	"encoding/json"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// hostAndStreams returns a host's connection, and a channel of the guest's ends of the streams that the host opens.
func hostAndStreams(t *testing.T) (host *wire.Conn, opened <-chan *wire.Stream) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*wire.Socket
	for i, fd := range pair {
		if ends[i], err = wire.NewSocket(fd); err != nil {
			t.Fatal(err)
		}
	}
	streams := make(chan *wire.Stream, 8)
	host = wire.NewConn(ends[0], wire.Host, nil)
	guest := wire.NewConn(ends[1], wire.Guest, func(s *wire.Stream, _ []byte) { streams <- s })
	go func() { _ = host.Serve() }()
	go func() { _ = guest.Serve() }()
	t.Cleanup(func() {
		host.Close()
		<-guest.Done()
	})
	return host, streams
}

// A number is assigned before the command is known to have started. Until then there is nothing to watch.
func TestJoin_beforeStart(t *testing.T) {
	host, opened := hostAndStreams(t)
	open := func() (own, peer *wire.Stream) {
		s, err := host.Open([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		return s, <-opened
	}
	receive := func(s *wire.Stream, decode func([]byte) error) {
		ev, err := s.Receive()
		if err != nil || decode(ev.Payload) != nil {
			t.Fatalf("got %q, %v", ev.Payload, err)
		}
	}
	g := &guest{resident: true, workers: map[int]*supervisor{}, detached: map[int]*command{}, reserved: map[int]reservation{}}
	for _, failed := range []*wire.Failed{nil, {What: wire.NoProgram, Text: "none"}} {
		_, starting := open()
		c := &command{g: g, s: starting, req: &wire.Exec{Detach: true}, done: make(chan struct{}), ended: make(chan struct{})}
		if failed := g.enlist(c); failed != nil {
			t.Fatal(failed)
		}
		own, peer := open()
		g.list(peer)
		var listed []wire.Detached
		if receive(own, func(b []byte) error { return json.Unmarshal(b, &listed) }); len(listed) != 0 {
			t.Errorf("listed before the start was reported: %+v", listed)
		}
		own, peer = open()
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			g.join(peer, &wire.Join{ID: c.id})
		}()
		c.settle(failed)
		var r wire.Reply
		if receive(own, func(b []byte) error { return wire.Unpack(b, &r) }); (r.Failed == nil) != (failed == nil) || (r.Started == nil) != (failed != nil) {
			t.Errorf("join of a command with failed start %v: %+v", failed != nil, r)
		}
		own.Close()
		<-joined
		g.strike(c.id)
	}
}
