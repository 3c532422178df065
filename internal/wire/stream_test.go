package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
)

func TestStream_slowReceiver(t *testing.T) {
	slow := make(chan *Stream, 1)
	host, _ := newPair(t, func(s *Stream, request []byte) {
		if string(request) == "slow" {
			slow <- s
			return
		}
		go func() { // an echo
			for {
				ev, err := s.Receive()
				if err != nil {
					return
				}
				s.Consume(len(ev.Payload))
				if s.Send(Stdout, ev.Payload) != nil {
					return
				}
			}
		}()
	})
	data := numbered(3 * window)
	sent := make(chan error, 1)
	stuck := open(t, host, "slow")
	go func() { sent <- stuck.Send(Stdin, data) }()
	guestEnd := <-slow

	quick := open(t, host, "quick")
	go func() { _ = quick.Send(Stdin, data) }()
	if got, err := collect(quick, len(data)); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the quick stream: %d bytes, %v", len(got), err)
	}
	eventually(t, "the slow stream has spent its credit", func() bool {
		guestEnd.mu.Lock()
		defer guestEnd.mu.Unlock()
		return guestEnd.held == window
	})
	select {
	case err := <-sent:
		t.Fatalf("%d bytes were sent without a receiver: %v", len(data), err)
	default:
	}
	if got, err := collect(guestEnd, len(data)); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the slow stream: %d bytes, %v", len(got), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestStream_window(t *testing.T) {
	c, r, _ := newRaw(t, Host, nil)
	r.greet()
	s := open(t, c, "")
	go func() { _ = s.Send(Stdin, make([]byte, 2*window)) }()
	count := func(want int) {
		t.Helper()
		for got := 0; got < want; {
			f := r.next(Data)
			if len(f.Payload) > MaxData {
				t.Fatalf("a frame of %d bytes", len(f.Payload))
			}
			if got += len(f.Payload) - 1; got > want {
				t.Fatalf("received %d bytes on credit for %d", got, want)
			}
		}
		r.send(0, Ping) // the answer comes after the data sent before
		for f := range r.frames {
			if f.Type == Data {
				t.Fatal("more data than credit")
			}
			if f.Type == Pong {
				break
			}
		}
	}
	count(window)
	r.send(1, Credit, credit(1)...)
	count(1)
	r.send(1, Credit, credit(100_000)...)
	count(100_000)
}

// One goroutine may receive while another closes the stream. No frame may follow the close.
func TestStream_concurrentClose(t *testing.T) {
	var notified atomic.Int32
	host, guest := newPair(t, func(s *Stream, _ []byte) {
		go func() {
			_ = s.Send(Stdout, make([]byte, window/4))
			for {
				if _, err := s.Receive(); err != nil {
					notified.Add(1)
					s.Close()
					return
				}
			}
		}()
	})
	const times = 200
	for range times {
		s := open(t, host, "x")
		taken := 0
		for taken < window/4 { // enough that credit must be sent
			ev, err := s.Receive()
			if err != nil {
				t.Fatal(err)
			}
			taken += len(ev.Payload)
		}
		var both sync.WaitGroup
		start := make(chan struct{})
		for _, f := range []func(){func() { s.Consume(taken) }, func() { _ = s.Send(Stdin, []byte("x")) }, s.Close} {
			both.Go(func() {
				<-start
				f()
			})
		}
		close(start)
		both.Wait()
	}
	eventually(t, "all streams have ended", func() bool { return notified.Load() == times })
	if err := errors.Join(host.Err(), guest.Err()); err != nil {
		t.Error(err)
	}
}

func TestStream_smallPieces(t *testing.T) {
	for name, channelOf := range map[string]func(i int) byte{
		"now and then another channel": func(i int) byte {
			if i%5000 == 0 {
				return Stderr
			}
			return Stdout
		},
		"two channels by turns":   func(i int) byte { return Stdout + byte(i%2) },
		"three channels by turns": func(i int) byte { return byte(i % 3) },
	} {
		t.Run(name, func(t *testing.T) { testSmallPieces(t, channelOf) })
	}
}

func TestStream_tooManyPieces(t *testing.T) {
	s := newStream(NewConn(nil, Host, nil), 1)
	for i := range window {
		err := s.take(Frame{Stream: 1, Type: Data, Payload: []byte{StdoutAt, 1}})
		if i < maxPieces && err != nil {
			t.Fatalf("piece %d: %v", i, err)
		}
		if i >= maxPieces {
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("piece %d: %v", i, err)
			}
			return
		}
	}
}

func testSmallPieces(t *testing.T, channelOf func(i int) byte) {
	s := newStream(NewConn(nil, Host, nil), 1)
	var want [3][]byte
	for i := range window / 8 {
		channel := channelOf(i)
		piece := []byte{channel, byte(i), byte(i >> 8)}
		want[channel] = append(want[channel], piece[1:]...)
		if err := s.take(Frame{Stream: 1, Type: Data, Payload: piece}); err != nil {
			t.Fatal(err)
		}
	}
	for _, piece := range [][]byte{{StdoutAt, 1}, {StdoutAt, 2}} {
		s.held -= 1 // credit for it
		if err := s.take(Frame{Stream: 1, Type: Data, Payload: piece}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.queue); n > manyPieces+4*window/smallPieces {
		t.Errorf("%d events queued", n)
	}
	var got [3][]byte
	for len(s.queue) > 2 {
		ev, err := s.Receive()
		if err != nil {
			t.Fatal(err)
		}
		got[ev.Channel] = append(got[ev.Channel], ev.Payload...)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("received other data than was sent")
	}
	for _, want := range []byte{1, 2} { // offsets are not merged
		if ev, err := s.Receive(); err != nil || len(ev.Payload) != 1 || ev.Payload[0] != want {
			t.Errorf("got %+v, %v", ev, err)
		}
	}
}

func TestStream_credit(t *testing.T) {
	c, r, _ := newRaw(t, Host, nil)
	r.greet()
	s := open(t, c, "")
	total := 0
	for range 3 * window / (MaxData - 1) {
		r.send(1, Data, numbered(MaxData)...)
		ev, err := s.Receive()
		if err != nil {
			t.Fatal(err)
		}
		s.Consume(len(ev.Payload))
		total += len(ev.Payload)
	}
	r.send(0, Ping)
	grants, granted := 0, 0
	for f := range r.frames {
		if f.Type == Credit {
			grants++
			granted += int(f.Payload[0])<<24 | int(f.Payload[1])<<16 | int(f.Payload[2])<<8 | int(f.Payload[3])
		}
		if f.Type == Pong {
			break
		}
	}
	if granted > total || granted < total-window/4 || grants > 12 {
		t.Errorf("after %d bytes, got credit of %d in %d frames", total, granted, grants)
	}
}

func TestStream_peerCloses(t *testing.T) {
	c, r, _ := newRaw(t, Host, nil)
	r.greet()
	s := open(t, c, "")
	r.send(1, Data, append([]byte{Stdout}, "data"...)...)
	r.send(1, End, Stdout)
	r.send(1, Message, 'm')
	r.send(1, Close)
	for _, want := range []Event{{Type: Data, Channel: Stdout, Payload: []byte("data")}, {Type: End, Channel: Stdout}, {Type: Message, Payload: []byte("m")}} {
		ev, err := s.Receive()
		if err != nil || ev.Type != want.Type || ev.Channel != want.Channel || !bytes.Equal(ev.Payload, want.Payload) {
			t.Errorf("got %+v, %v, want %+v", ev, err, want)
		}
	}
	for range 2 {
		if _, err := s.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("after the close: %v", err)
		}
	}
	if err := s.Send(Stdin, make([]byte, 2*window)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("data to a closed stream: %v", err)
	}
	for name, err := range map[string]error{"message": s.SendMessage(nil), "end": s.SendEnd(Stdin)} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s to a closed stream: %v", name, err)
		}
	}
	if c.Err() != nil {
		t.Error(c.Err())
	}
}

func TestStream_Close(t *testing.T) {
	c, r, _ := newRaw(t, Host, nil)
	r.greet()
	s := open(t, c, "")
	waiting := make(chan error, 2)
	go func() { _, err := s.Receive(); waiting <- err }()
	go func() { waiting <- s.Send(Stdin, make([]byte, 2*window)) }()
	eventually(t, "the credit is spent", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.tokens == 0
	})
	s.Close()
	s.Close()
	for range 2 {
		if err := <-waiting; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a waiting call returned %v", err)
		}
	}
	_ = s.SendMessage([]byte("late"))
	r.send(1, Data, Stdout, 'x')
	r.send(1, Message, 'm')
	r.send(1, Close)
	r.send(0, Ping)
	closes := 0
	for f := range r.frames {
		switch f.Type {
		case Close:
			closes++
		case Message:
			t.Error("a message came after the close")
		}
		if f.Type == Pong {
			break
		}
	}
	if closes != 1 {
		t.Errorf("%d closes were sent", closes)
	}
	if len(c.streams) != 0 || c.Err() != nil {
		t.Errorf("%d streams, %v", len(c.streams), c.Err())
	}
}

func TestStream_sendAfterPeerCloses(t *testing.T) {
	streams := make(chan *Stream, 1)
	host, _ := newPair(t, func(s *Stream, _ []byte) { streams <- s })
	open(t, host, "").Close()
	guestEnd := <-streams
	if _, err := guestEnd.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := guestEnd.SendMessage([]byte("late")); err != nil { // the peer drops it
		t.Error(err)
	}
	guestEnd.Close()
	if !host.Ping(nil) {
		t.Error("the connection ended")
	}
}

func TestConn_closedStreamsFreed(t *testing.T) {
	host, guest := newPair(t, func(s *Stream, _ []byte) { s.Close() })
	for range 2 * maxStreams {
		s := open(t, host, "")
		if _, err := s.Receive(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		s.Close()
	}
	eventually(t, "no stream is left", func() bool { // the last stream is forgotten after its close was sent
		guest.mu.Lock()
		defer guest.mu.Unlock()
		return guest.peers == 0 && len(guest.streams) == 0
	})
}

func TestStream_concurrentSends(t *testing.T) {
	const streams, pieces, size = 24, 40, 9000
	host, _ := newPair(t, func(s *Stream, request []byte) {
		mark := request[0]
		var senders sync.WaitGroup
		for _, channel := range []byte{Stdout, Stderr} {
			senders.Go(func() {
				for i := range pieces {
					_ = s.Send(channel, bytes.Repeat([]byte{mark ^ channel ^ byte(i)}, size))
				}
				_ = s.SendEnd(channel)
			})
		}
		go func() {
			senders.Wait()
			s.Close()
		}()
	})
	var done sync.WaitGroup
	errs := make(chan error, streams)
	for n := range byte(streams) {
		s := open(t, host, string([]byte{n}))
		done.Go(func() {
			var got [3]int
			for {
				ev, err := s.Receive()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					errs <- err
					return
				}
				for _, b := range ev.Payload {
					if b != n^ev.Channel^byte(got[ev.Channel]/size) {
						errs <- fmt.Errorf("stream %d, channel %d: byte %d is %d", n, ev.Channel, got[ev.Channel], b)
						return
					}
					got[ev.Channel]++
				}
				s.Consume(len(ev.Payload))
			}
			if got[Stdout] != pieces*size || got[Stderr] != pieces*size {
				errs <- fmt.Errorf("stream %d: received %v bytes", n, got)
			}
			s.Close()
		})
	}
	done.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}
