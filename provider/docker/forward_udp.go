package docker

import (
	"bytes"
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// datagrams forwards what is sent to one UDP port of the host. Each address that sends there is a client with a talk
// of its own, so that the answers find back. UDP has no ends: a talk is over when neither side has said anything for
// talkIdle, or when there is no room for another client and it has been silent for longest.
type datagrams struct {
	host  packetConn
	begin func(context.Context) (talk, error) // reaches the port inside
	lost  func(error)                         // is told why a client's datagrams were not forwarded

	mu      sync.Mutex
	clients map[netip.AddrPort]*udpClient
	running sync.WaitGroup
}

// packetConn is what is used of a net.UDPConn.
type packetConn interface {
	ReadFromUDPAddrPort(p []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(p []byte, to netip.AddrPort) (int, error)
}

// talk is an exchange of datagrams with the port inside. Close ends both of the others.
type talk interface {
	Receive() ([]byte, error)
	Send(datagram []byte) error
	Close() error
}

// udpClient is who sends from one address.
type udpClient struct {
	queue chan []byte // what is not sent on yet
	held  atomic.Int64
	used  time.Time // when one of both has said something last
	idle  *time.Timer
	end   context.CancelFunc
}

const (
	// talkIdle is as long as Docker's own forwarding of published ports keeps a silent client.
	talkIdle = 90 * time.Second
	// mostQueued datagrams, and mostHeld bytes, may wait for a client's talk to begin, or for a guest that takes
	// them slowly. What is more is lost, as it is where a program takes its datagrams slowly.
	mostQueued = 256
	mostHeld   = 256 << 10
)

// serve forwards until the port is closed.
func (d *datagrams) serve(ctx context.Context) {
	defer d.running.Wait()
	d.clients = map[netip.AddrPort]*udpClient{}
	buf := make([]byte, wire.MaxDatagram)
	for {
		n, from, err := d.host.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		d.client(ctx, from).offer(buf[:n])
	}
}

// client returns the client at an address, which is perhaps new.
func (d *datagrams) client(ctx context.Context, at netip.AddrPort) *udpClient {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.clients[at]; c != nil {
		c.use()
		return c
	}
	if len(d.clients) >= mostForwarded {
		d.dropSilent()
	}
	life, end := context.WithCancel(ctx)
	c := &udpClient{queue: make(chan []byte, mostQueued), used: time.Now(), end: end}
	c.idle = time.AfterFunc(talkIdle, func() { d.drop(at, c) })
	d.clients[at] = c
	d.running.Go(func() {
		defer d.drop(at, c)
		if err := d.exchange(life, at, c); err != nil && life.Err() == nil {
			d.lost(err)
		}
	})
	return c
}

// dropSilent makes room for one client.
func (d *datagrams) dropSilent() {
	var silent netip.AddrPort
	for at, c := range d.clients {
		if s := d.clients[silent]; s == nil || c.used.Before(s.used) {
			silent = at
		}
	}
	d.clients[silent].end()
	delete(d.clients, silent)
}

// drop forgets a client and ends its talk. What its address sends next begins another.
func (d *datagrams) drop(at netip.AddrPort, c *udpClient) {
	c.end()
	c.idle.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients[at] == c {
		delete(d.clients, at)
	}
}

// use notes that something was said.
func (c *udpClient) use() {
	c.used = time.Now()
	c.idle.Reset(talkIdle)
}

// offer queues a datagram where there is room.
func (c *udpClient) offer(datagram []byte) {
	size := int64(len(datagram))
	if c.held.Add(size) <= mostHeld {
		select {
		case c.queue <- bytes.Clone(datagram):
			return
		default:
		}
	}
	c.held.Add(-size)
}

// exchange passes datagrams on in both directions until ctx ends or one of them does.
func (d *datagrams) exchange(ctx context.Context, at netip.AddrPort, c *udpClient) error {
	within, cancel := context.WithTimeout(ctx, dialTimeout)
	inside, err := d.begin(within)
	cancel()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { inside.Close() })() // unblocks both directions
	received := make(chan struct{})
	defer func() {
		inside.Close()
		<-received
	}()
	go func() {
		defer close(received)
		defer c.end()
		for {
			datagram, err := inside.Receive()
			if err != nil {
				return
			}
			_, _ = d.host.WriteToUDPAddrPort(datagram, at) // else it is lost
			d.mu.Lock()
			c.use()
			d.mu.Unlock()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case datagram := <-c.queue:
			c.held.Add(-int64(len(datagram)))
			if err := inside.Send(datagram); err != nil {
				return err
			}
		}
	}
}
