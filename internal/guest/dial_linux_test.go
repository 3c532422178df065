package guest

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// A program that never reads blocks writes to it, but must not block the release of the connection.
func TestDial_programDoesNotRead(t *testing.T) {
	if testing.Short() {
		t.Skipf("waits for lingerWithin, %v", lingerWithin)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	host, opened := hostAndStreams(t)
	own, err := host.Open([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	peer := <-opened
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer peer.Close()
		(&guest{}).dial(peer, &wire.Dial{Addresses: []string{"127.0.0.1"}, Port: netip.MustParseAddrPort(listener.Addr().String()).Port()})
	}()
	if ev, err := own.Receive(); err != nil || string(ev.Payload) != "{}" {
		t.Fatalf("got %q, %v", ev.Payload, err)
	}
	var sent atomic.Int64
	full := make(chan struct{})
	go func() { // closes the stream once the buffers are full
		defer close(full)
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for last := int64(-1); sent.Load() != last; <-tick.C {
			last = sent.Load()
		}
		own.Close()
	}()
	for err == nil {
		if err = own.Send(wire.Stdin, make([]byte, 1<<16)); err == nil {
			sent.Add(1)
		}
	}
	<-full
	select {
	case <-over:
	case <-time.After(10 * lingerWithin):
		t.Error("the connection was not released")
	}
}
