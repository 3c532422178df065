package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
)

// forwards are the ports of a service to which this process forwards connections and datagrams. A guest connects to
// them from inside the sandbox.
type forwards struct {
	running sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	life      context.Context // of everything that is forwarded; nil before the first forward
	cancel    context.CancelFunc
	listeners []io.Closer
	ports     []fumehood.Port
}

const (
	// mostForwarded is the maximum number of connections, or of UDP clients, that one port may have at once.
	mostForwarded = 256
	// dialTimeout bounds the wait for a guest to connect.
	dialTimeout = 30 * time.Second
)

// forwardAll forwards the ports that the project asks for, because the Engine publishes no ports on internal networks.
// It includes the ports of services that have completed, because these count as ready.
func (s *service) forwardAll(ctx context.Context) error {
	if len(s.Service.Forward) == 0 {
		return nil
	}
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil {
		return err
	}
	for _, p := range s.Service.Forward {
		if _, err := s.listen(ctx, p, state); err != nil {
			return s.failure("forward ports", err)
		}
	}
	return nil
}

// Forward listens on a port of the host and forwards to a port of the service.
func (s *service) Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error) {
	if s.sb.direct() {
		return fumehood.Port{}, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errNoForwards}
	}
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil {
		return fumehood.Port{}, err
	}
	if !state.Running {
		return fumehood.Port{}, state.Unavailable()
	}
	return s.listen(ctx, p, state)
}

// listen starts to forward a host port to the container with the given state.
func (s *service) listen(ctx context.Context, p fumehood.Port, state engine.State) (fumehood.Port, error) {
	// Docker forwards published ports to the container's addresses. Fumehood also reaches programs that listen only on
	// the container's loopback address.
	addresses := append(slices.Clone(state.Addresses), netip.MustParseAddr("127.0.0.1"))
	at := net.JoinHostPort(cmp.Or(p.Address, "127.0.0.1"), strconv.Itoa(p.Host))
	forward := s.forwardTCP
	if p.Protocol == fumehood.ProtocolUDP {
		forward = s.forwardUDP
	}
	f := &s.forwards
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fumehood.Port{}, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is closed")}
	}
	if f.life == nil {
		f.life, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	l, host, err := forward(f.life, at, addresses, uint16(p.Container)) //nolint:contextcheck,gosec // it outlives the call; a port
	if err != nil {
		return fumehood.Port{}, &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	got := fumehood.Port{Host: int(host.Port()), Container: p.Container, Protocol: cmp.Or(p.Protocol, fumehood.ProtocolTCP), Address: host.Addr().String()}
	f.listeners, f.ports = append(f.listeners, l), append(f.ports, got)
	return got, nil
}

// told returns the ports that are forwarded now.
func (f *forwards) told() []fumehood.Port {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ports)
}

var errNoForwards = errors.New("ports of internal networks need the guest, which this transport does not use")

// forwardTCP listens on an address of the host. It forwards connections until ctx ends and the listener is closed.
func (s *service) forwardTCP(ctx context.Context, at string, addresses []netip.Addr, port uint16) (io.Closer, netip.AddrPort, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	s.forwards.running.Go(func() { s.accept(ctx, l, addresses, port) })
	return l, l.Addr().(*net.TCPAddr).AddrPort(), nil
}

// forwardUDP is forwardTCP for datagrams.
func (s *service) forwardUDP(ctx context.Context, at string, addresses []netip.Addr, port uint16) (io.Closer, netip.AddrPort, error) {
	l, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	d := &datagrams{
		host: l.(*net.UDPConn),
		begin: func(ctx context.Context) (talk, error) {
			guest, err := s.guests.Own(ctx)
			if err != nil {
				return nil, err
			}
			return guest.Talk(ctx, addresses, port)
		},
		lost: func(err error) { s.unforwarded("datagrams are not forwarded", port, err) },
	}
	s.forwards.running.Go(func() { d.serve(ctx) })
	return l, l.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// unforwarded logs what was not forwarded, and why.
func (s *service) unforwarded(what string, port uint16, err error) {
	s.sb.p.opts.Logger.Debug(what, "sandbox", s.sb.spec.Name, "service", s.Name, "port", port, "error", err)
}

// checkForwards rejects ports that cannot be forwarded, before anything is created.
func (sb *sandbox) checkForwards(services []compose.Service) error {
	for _, s := range services {
		if len(s.Forward) > 0 && sb.direct() {
			return &fumehood.Error{
				Op: fmt.Sprintf("forward port %d", s.Forward[0].Container), Service: s.Name, Class: fumehood.ErrUnsupported,
				Err:  errNoForwards,
				Hint: "remove the port, or set x-fumehood: {egress: internet}",
			}
		}
	}
	return nil
}

// accept forwards the connections to one port until the listener is closed.
func (s *service) accept(ctx context.Context, l net.Listener, addresses []netip.Addr, port uint16) {
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
		s.forwards.running.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			if err := s.pass(ctx, conn, addresses, port); err != nil {
				s.unforwarded("a connection is not forwarded", port, err)
			}
		})
	}
}

// pass connects to the port and copies bytes in both directions until both directions end.
func (s *service) pass(ctx context.Context, conn net.Conn, addresses []netip.Addr, port uint16) error {
	guest, err := s.guests.Own(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	inside, err := guest.Dial(within, addresses, port)
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

// close stops all forwarding and waits until it has ended.
func (f *forwards) close() {
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
