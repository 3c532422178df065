package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/compose"
)

// forwards are the ports of a service that this process forwards connections to, since the Engine publishes
// nothing of internal networks. A guest connects to them from inside.
type forwards struct {
	cancel    context.CancelFunc
	listeners []net.Listener
	ports     []lazaret.Port
	running   sync.WaitGroup
}

const (
	// mostForwarded is how many connections to one port there may be at once.
	mostForwarded = 256
	// dialTimeout bounds the wait for a guest's word on a connection.
	dialTimeout = 30 * time.Second
)

// forward listens for connections to the service's ports that are to be forwarded.
func (s *service) forward(ctx context.Context) error {
	if len(s.Forward) == 0 {
		return nil
	}
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil {
		return err
	}
	// What Docker publishes is reached at the container's addresses. What listens on its loopback address only
	// is reached here as well.
	addresses := append(state.Addresses, netip.MustParseAddr("127.0.0.1"))
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.forwards.cancel = cancel
	for _, p := range s.Forward {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(cmp.Or(p.Address, "127.0.0.1"), strconv.Itoa(p.Host)))
		if err != nil {
			return s.failure("forward ports", &lazaret.Error{Class: lazaret.ErrConfig, Err: err})
		}
		at := l.Addr().(*net.TCPAddr).AddrPort()
		s.forwards.listeners = append(s.forwards.listeners, l)
		s.forwards.ports = append(s.forwards.ports, lazaret.Port{
			Host: int(at.Port()), Container: p.Container, Protocol: lazaret.ProtocolTCP, Address: at.Addr().String(),
		})
		s.forwards.running.Go(func() { s.accept(life, l, addresses, uint16(p.Container)) }) //nolint:gosec // a port
	}
	return nil
}

// checkForwards refuses ports that cannot be forwarded, before anything is made.
func (sb *sandbox) checkForwards(services []compose.Service) error {
	for _, s := range services {
		for _, p := range s.Forward {
			e := &lazaret.Error{Op: fmt.Sprintf("forward port %d", p.Container), Service: s.Name, Class: lazaret.ErrUnsupported, Hint: "leave it out, or say x-lazaret: {egress: internet}"}
			switch {
			case sb.direct():
				e.Err = errors.New("a port of an internal network is reached by the guest, which this transport does without")
			case p.Protocol == lazaret.ProtocolUDP:
				e.Err = errors.New("of internal networks only TCP ports are forwarded")
			default:
				continue
			}
			return e
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
				s.sb.p.opts.Logger.Debug("a connection is not forwarded", "sandbox", s.sb.spec.Name, "service", s.Name, "port", port, "error", err)
			}
		})
	}
}

// pass connects to the port and passes bytes on in both directions until both are done.
func (s *service) pass(ctx context.Context, conn net.Conn, addresses []netip.Addr, port uint16) error {
	guest, err := s.guests.of(ctx, "")
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

// close ends all forwarding.
func (f *forwards) close() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	for _, l := range f.listeners {
		_ = l.Close() // it is nobody's any more
	}
	f.running.Wait()
	f.cancel = nil
}
