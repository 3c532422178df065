package box

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire/host"
)

// Ports are the forwarded ports of a service. Its methods may be called concurrently.
type Ports struct {
	guest   func(context.Context) (*host.Guest, error) // nil if there is a dialer
	dialer  func(ctx context.Context, port int) (fumehood.Conn, error)
	log     *slog.Logger
	running sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	life      context.Context // of everything that is forwarded; nil before the first forward
	cancel    context.CancelFunc
	listeners []io.Closer
	ports     []fumehood.Port
	dialed    int // open connections of Dial
}

const (
	// mostForwarded is the maximum number of connections, or of UDP clients, that one port may have at once.
	mostForwarded = 256
	// mostDialed is the maximum number of connections of Dial that a service may have at once. A guest ends with its
	// commands when a host has some thousand streams.
	mostDialed = 1024
	// dialTimeout bounds the wait for a guest to connect.
	dialTimeout = 30 * time.Second
)

// NewPorts returns the ports of a service, none at first. It asks for a guest of the service for each connection, and logs
// at level debug what could not be forwarded.
func NewPorts(guest func(context.Context) (*host.Guest, error), log *slog.Logger) *Ports {
	return &Ports{guest: guest, log: log}
}

// NewDialedPorts returns the ports of a service that is reached by a function. It forwards TCP ports only.
func NewDialedPorts(dialer func(ctx context.Context, port int) (fumehood.Conn, error), log *slog.Logger) *Ports {
	return &Ports{dialer: dialer, log: log}
}

// Listen starts to forward a port of the host, until Close. The guest connects to the port at the first of the given
// addresses that accepts, and last at 127.0.0.1. Listen returns the port with the address on which it listens. An
// address in use is an ErrConfig. After Close the error is an ErrUnavailable.
func (f *Ports) Listen(ctx context.Context, p fumehood.Port, addresses ...netip.Addr) (fumehood.Port, error) {
	addresses = withLoopback(addresses)
	at := net.JoinHostPort(cmp.Or(p.Address, "127.0.0.1"), strconv.Itoa(p.Host))
	listen := f.tcp
	if p.Protocol == fumehood.ProtocolUDP {
		if f.guest == nil {
			return fumehood.Port{}, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("this provider forwards TCP ports only")}
		}
		listen = f.udp
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fumehood.Port{}, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is closed")}
	}
	if f.life == nil {
		f.life, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	l, host, err := listen(f.life, at, addresses, uint16(p.Container)) //nolint:contextcheck,gosec // it outlives the call; a port
	if err != nil {
		return fumehood.Port{}, &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	got := fumehood.Port{Host: int(host.Port()), Container: p.Container, Protocol: cmp.Or(p.Protocol, fumehood.ProtocolTCP), Address: host.Addr().String()}
	f.listeners, f.ports = append(f.listeners, l), append(f.ports, got)
	return got, nil
}

// withLoopback adds 127.0.0.1 to a container's addresses. Docker forwards published ports to the addresses. Fumehood also
// reaches programs that listen only on the container's loopback address.
func withLoopback(addresses []netip.Addr) []netip.Addr {
	return append(slices.Clone(addresses), netip.MustParseAddr("127.0.0.1"))
}

// Dial connects to a port as Listen does for a connection. The connection ends with the guest. An error is an ErrUnavailable
// if no program listens on the port, and an ErrLimit if mostDialed connections are open.
func (f *Ports) Dial(ctx context.Context, port uint16, addresses ...netip.Addr) (fumehood.Conn, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	conn, err := f.dial(ctx, withLoopback(addresses), port)
	if err != nil {
		f.leave()
		return nil, err
	}
	return &dialed{Conn: conn, leave: sync.OnceFunc(f.leave)}, nil
}

// enter counts a connection of Dial.
func (f *Ports) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dialed >= mostDialed {
		return &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("%d connections to the service's ports are open", mostDialed), Hint: "close some"}
	}
	f.dialed++
	return nil
}

func (f *Ports) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dialed--
}

// dialed is a connection of Dial.
type dialed struct {
	fumehood.Conn
	leave func()
}

// Close ends the connection.
func (d *dialed) Close() error {
	d.leave()
	return d.Conn.Close()
}

// dial makes a guest connect to a port at the first of the addresses that accepts.
func (f *Ports) dial(ctx context.Context, addresses []netip.Addr, port uint16) (fumehood.Conn, error) {
	if f.dialer != nil {
		return f.dialer(ctx, int(port))
	}
	guest, err := f.guest(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := guest.Dial(ctx, addresses, port)
	if err != nil {
		return nil, err // not a nil *host.Conn in the interface
	}
	return conn, nil
}

// All returns the ports that are forwarded now, in the order of the calls of Listen.
func (f *Ports) All() []fumehood.Port {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ports)
}

// Close stops all forwarding and waits until it has ended. It may be called again.
func (f *Ports) Close() {
	f.mu.Lock()
	f.closed = true
	listeners := f.listeners
	f.listeners, f.ports = nil, nil
	if f.cancel != nil {
		f.cancel()
	}
	f.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close() // no caller uses it any more
	}
	f.running.Wait()
}

// tcp listens on an address of the host. It forwards connections until ctx ends and the listener is closed.
func (f *Ports) tcp(ctx context.Context, at string, addresses []netip.Addr, port uint16) (io.Closer, netip.AddrPort, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	f.running.Go(func() { f.accept(ctx, l, addresses, port) })
	return l, l.Addr().(*net.TCPAddr).AddrPort(), nil
}

// udp is tcp for datagrams.
func (f *Ports) udp(ctx context.Context, at string, addresses []netip.Addr, port uint16) (io.Closer, netip.AddrPort, error) {
	l, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	d := &datagrams{
		host: l.(*net.UDPConn),
		begin: func(ctx context.Context) (talk, error) {
			guest, err := f.guest(ctx)
			if err != nil {
				return nil, err
			}
			return guest.Talk(ctx, addresses, port)
		},
		lost: func(err error) { f.log.Debug("datagrams are not forwarded", "port", port, "error", err) },
	}
	f.running.Go(func() { d.serve(ctx) })
	return l, l.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// accept forwards the connections to one port until the listener is closed.
func (f *Ports) accept(ctx context.Context, l net.Listener, addresses []netip.Addr, port uint16) {
	slots := make(chan struct{}, mostForwarded)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := l.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			if err := f.pass(ctx, conn, addresses, port); err != nil {
				f.log.Debug("a connection is not forwarded", "port", port, "error", err)
			}
		})
	}
}

// pass connects to the port and copies bytes in both directions until both directions end.
func (f *Ports) pass(ctx context.Context, conn net.Conn, addresses []netip.Addr, port uint16) error {
	inside, err := f.dial(ctx, addresses, port)
	if err != nil {
		return err
	}
	defer inside.Close()
	end := func() { // unblocks both directions
		conn.Close()
		inside.Close()
	}
	defer context.AfterFunc(ctx, end)()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.Copy(inside, conn); err != nil || inside.CloseWrite() != nil {
			end()
		}
	}()
	if _, err := io.Copy(conn, inside); err != nil || conn.(*net.TCPConn).CloseWrite() != nil {
		end()
	}
	<-sent
	return nil
}
