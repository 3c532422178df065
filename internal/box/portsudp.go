package box

import (
	"bytes"
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// datagrams forwards what is sent to one UDP port of the host. Each source address is a client with its own talk, so
// that replies reach the right client. UDP has no end of a connection. A talk ends when both sides have been silent for
// talkIdle, or when a new client needs its place and it is the one that has been silent longest.
type datagrams struct {
	host  packetConn
	begin func(context.Context) (talk, error) // connects to the port inside the sandbox
	lost  func(error)                         // called with the reason when a client's datagrams were not forwarded

	mu      sync.Mutex
	clients map[netip.AddrPort]*udpClient
	running sync.WaitGroup
}

// packetConn is the part of net.UDPConn that is used here.
type packetConn interface {
	ReadFromUDPAddrPort(p []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(p []byte, to netip.AddrPort) (int, error)
}

// talk is an exchange of datagrams with the port inside the sandbox. Close unblocks Receive and Send.
type talk interface {
	Receive() ([]byte, error)
	Send(datagram []byte) error
	Close() error
}

// udpClient is the client at one source address.
type udpClient struct {
	queue chan []byte // datagrams that are not sent yet
	held  atomic.Int64
	used  time.Time // time of the last datagram in either direction
	idle  *time.Timer
	end   context.CancelFunc
}

const (
	// talkIdle is how long a silent client is kept; the same as in Docker's own forwarding of published ports.
	talkIdle = 90 * time.Second
	// mostQueued datagrams, with mostHeld bytes in total, may wait for a client's talk to begin, or for a slow guest.
	// More are dropped, as they are for a program that receives its datagrams slowly.
	mostQueued = 256
	mostHeld   = 256 << 10
)

// serve forwards datagrams until the port is closed.
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

// client returns the client at an address, and creates it if necessary.
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

// dropSilent drops the client that has been silent longest, to make room for a new one.
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

// drop removes a client and ends its talk. The next datagram from its address starts a new talk.
func (d *datagrams) drop(at netip.AddrPort, c *udpClient) {
	c.end()
	c.idle.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients[at] == c {
		delete(d.clients, at)
	}
}

// use records activity and restarts the idle timer.
func (c *udpClient) use() {
	c.used = time.Now()
	c.idle.Reset(talkIdle)
}

// offer queues a datagram if there is room.
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

// exchange passes datagrams on in both directions until ctx ends or one direction fails.
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
			_, _ = d.host.WriteToUDPAddrPort(datagram, at) // on an error the datagram is lost
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
