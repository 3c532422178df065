package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
)

// packet is a datagram and the client that sends or receives it.
type packet struct {
	client netip.AddrPort
	data   string
}

// fakePort is a UDP port of the host.
type fakePort struct {
	in, out chan packet
}

func (p *fakePort) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	got, ok := <-p.in
	if !ok {
		return 0, netip.AddrPort{}, net.ErrClosed
	}
	return copy(b, got.data), got.client, nil
}

func (p *fakePort) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	p.out <- packet{to, string(b)}
	return len(b), nil
}

// fakeTalk answers each datagram with its number and its content, once it is allowed to.
type fakeTalk struct {
	answers chan string
	stuck   chan struct{} // Send blocks until it is closed; nil does not block
	ended   chan struct{}
	once    sync.Once
	n       int
}

func (f *fakeTalk) Receive() ([]byte, error) {
	select {
	case a := <-f.answers:
		return []byte(a), nil
	case <-f.ended:
		return nil, io.EOF
	}
}

func (f *fakeTalk) Send(datagram []byte) error {
	select {
	case <-f.stuck:
	case <-f.ended:
		return io.ErrClosedPipe
	}
	f.n++
	f.answers <- fmt.Sprintf("%d %s", f.n, datagram)
	return nil
}

func (f *fakeTalk) Close() error {
	f.once.Do(func() { close(f.ended) })
	return nil
}

func (f *fakeTalk) over() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// forwarding is a port that is forwarded to fake talks.
type forwarding struct {
	*fakePort
	refuse error // the error of beginning a talk
	stuck  chan struct{}
	talks  []*fakeTalk
	lost   []error
}

// forwarded runs f in a bubble, while a port is being forwarded.
func forwarded(t *testing.T, f func(t *testing.T, w *forwarding)) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		close(ready)
		w := &forwarding{fakePort: &fakePort{make(chan packet), make(chan packet, 1000)}, stuck: ready}
		var mu sync.Mutex
		d := &datagrams{
			host: w.fakePort,
			begin: func(context.Context) (talk, error) {
				mu.Lock()
				defer mu.Unlock()
				if w.refuse != nil {
					return nil, w.refuse
				}
				w.talks = append(w.talks, &fakeTalk{answers: make(chan string, 1000), stuck: w.stuck, ended: make(chan struct{})})
				return w.talks[len(w.talks)-1], nil
			},
			lost: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				w.lost = append(w.lost, err)
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			d.serve(ctx)
		}()
		f(t, w)
		cancel()
		close(w.in)
		<-served
		for i, talk := range w.talks {
			if !talk.over() {
				t.Errorf("talk %d is still open", i)
			}
		}
	})
}

// say makes a client send a datagram.
func (w *forwarding) say(client int, data string) {
	w.in <- packet{clientAt(client), data}
	synctest.Wait()
}

func clientAt(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(1000+n)) //nolint:gosec // small
}

// hears checks the next datagram that a client receives.
func (w *forwarding) hears(t *testing.T, client int, want string) {
	t.Helper()
	select {
	case got := <-w.out:
		if got != (packet{clientAt(client), want}) {
			t.Errorf("got %+v, want %q for client %d", got, want, client)
		}
	default:
		t.Errorf("client %d receives nothing, want %q", client, want)
	}
}

func TestDatagrams_clients(t *testing.T) {
	forwarded(t, func(t *testing.T, w *forwarding) {
		w.say(1, "a")
		w.say(2, "b")
		w.say(1, "")
		w.hears(t, 1, "1 a")
		w.hears(t, 2, "1 b")
		w.hears(t, 1, "2 ")
		if len(w.talks) != 2 {
			t.Errorf("%d talks", len(w.talks))
		}
	})
}

func TestDatagrams_idleTalk(t *testing.T) {
	forwarded(t, func(t *testing.T, w *forwarding) {
		w.say(1, "a")
		w.hears(t, 1, "1 a")
		<-time.After(talkIdle - time.Second)
		w.say(1, "b")
		w.hears(t, 1, "2 b")
		<-time.After(talkIdle - time.Second)
		w.talks[0].answers <- "by itself"
		synctest.Wait()
		w.hears(t, 1, "by itself")
		<-time.After(talkIdle - time.Second)
		if w.talks[0].over() {
			t.Error("talk ended although a datagram was sent")
		}
		<-time.After(2 * time.Second)
		if !w.talks[0].over() {
			t.Error("talk is still open after the idle time")
		}
		w.say(1, "c")
		w.hears(t, 1, "1 c")
	})
}

func TestDatagrams_dropSilent(t *testing.T) {
	forwarded(t, func(t *testing.T, w *forwarding) {
		for i := range mostForwarded {
			w.say(i, "x")
			<-time.After(time.Millisecond)
		}
		w.say(0, "y") // makes client 1 the one that has been silent longest
		w.say(mostForwarded, "new")
		if over := w.talks[1].over(); len(w.talks) != mostForwarded+1 || !over || w.talks[0].over() || w.talks[2].over() {
			t.Errorf("%d talks; talk of client 1 has ended: %t", len(w.talks), over)
		}
	})
}

func TestDatagrams_guestSlow(t *testing.T) {
	forwarded(t, func(t *testing.T, w *forwarding) {
		w.stuck = make(chan struct{})
		big := string(make([]byte, 60<<10))
		for range 10 {
			w.say(1, big)
		}
		for range mostQueued + 10 {
			w.say(2, "small")
		}
		close(w.stuck)
		synctest.Wait()
		got := map[netip.AddrPort]int{}
		for len(w.out) > 0 {
			got[(<-w.out).client]++
		}
		// One datagram was being sent, the others were queued.
		if bigs, smalls := got[clientAt(1)], got[clientAt(2)]; bigs != 1+mostHeld/len(big) || smalls != 1+mostQueued {
			t.Errorf("%d large and %d small datagrams were kept", bigs, smalls)
		}
		w.say(1, "z")
		if len(w.out) != 1 {
			t.Errorf("afterwards %d datagrams came back", len(w.out))
		}
	})
}

func TestDatagrams_noListener(t *testing.T) {
	forwarded(t, func(t *testing.T, w *forwarding) {
		w.refuse = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("nobody")}
		w.say(1, "a")
		if len(w.lost) != 1 || !errors.Is(w.lost[0], fumehood.ErrUnavailable) {
			t.Errorf("told %v", w.lost)
		}
		w.refuse = nil
		w.say(1, "b")
		w.hears(t, 1, "1 b")
	})
}

func TestDatagrams_talkRestarts(t *testing.T) {
	forwarded(t, func(t *testing.T, w *forwarding) {
		w.say(1, "a")
		w.hears(t, 1, "1 a")
		w.talks[0].Close()
		synctest.Wait()
		w.say(1, "b")
		w.hears(t, 1, "1 b")
		if len(w.talks) != 2 {
			t.Errorf("%d talks", len(w.talks))
		}
	})
}
