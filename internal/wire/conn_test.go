package wire

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestConn_invalidGreeting(t *testing.T) {
	for name, send := range map[string]func(*raw){
		"another frame first":           func(r *raw) { r.send(0, Ping) },
		"a greeting on a stream":        func(r *raw) { r.send(1, Hello, Version) },
		"an empty greeting":             func(r *raw) { r.send(0, Hello) },
		"a newer version":               func(r *raw) { r.send(0, Hello, Version+1) },
		"version 0":                     func(r *raw) { r.send(0, Hello, 0) },
		"a second greeting":             func(r *raw) { r.greet(); r.greet() },
		"a second greeting on a stream": func(r *raw) { r.greet(); r.send(1, Hello, Version) },
		"not a frame":                   func(r *raw) { _, _ = io.WriteString(r.conn, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		"a greeting beyond the limit":   func(r *raw) { r.header(0, Hello, MaxFromHost+1) },
	} {
		for _, role := range []Role{Host, Guest} {
			_, r, served := newRaw(t, role, nil)
			send(r)
			if err := ended(t, served); !errors.Is(err, ErrProtocol) {
				t.Errorf("%s, to role %d: %v", name, role, err)
			}
		}
	}
}

func TestConn_peerCloses(t *testing.T) {
	_, r, served := newRaw(t, Host, nil)
	r.greet()
	_ = r.conn.Close()
	if err := ended(t, served); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	_, r, served = newRaw(t, Host, nil)
	r.greet()
	r.header(1, Message, 10)
	_ = r.conn.Close()
	if err := ended(t, served); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("in the middle of a frame: %v", err)
	}
}

func TestConn_protocolErrors(t *testing.T) {
	for name, c := range map[string]struct {
		role Role
		send func(r *raw, stream uint32)
	}{
		"an unknown type":                {Host, func(r *raw, s uint32) { r.send(s, 10) }},
		"a frame over the host's limit":  {Host, func(r *raw, s uint32) { r.header(s, Message, MaxFromGuest+1) }},
		"a frame over the guest's limit": {Guest, func(r *raw, s uint32) { r.header(s, Message, MaxFromHost+1) }},
		"to a host, a host's stream":     {Host, func(r *raw, _ uint32) { r.send(3, Open) }},
		"to a guest, a guest's stream":   {Guest, func(r *raw, _ uint32) { r.send(4, Open) }},
		"to a host, stream 0":            {Host, func(r *raw, _ uint32) { r.send(0, Open) }},
		"to a guest, stream 0":           {Guest, func(r *raw, _ uint32) { r.send(0, Open) }},
		"a stream that is open":          {Guest, func(r *raw, s uint32) { r.send(s, Open) }},
		"data without a channel":         {Host, func(r *raw, s uint32) { r.send(s, Data) }},
		"data without bytes":             {Host, func(r *raw, s uint32) { r.send(s, Data, Stdout) }},
		"too many bytes of data":         {Host, func(r *raw, s uint32) { r.send(s, Data, numbered(MaxData+1)...) }},
		"an end frame without a channel": {Host, func(r *raw, s uint32) { r.send(s, End) }},
		"an end frame of two channels":   {Host, func(r *raw, s uint32) { r.send(s, End, 1, 2) }},
		"credit of three bytes":          {Host, func(r *raw, s uint32) { r.send(s, Credit, 0, 0, 1) }},
		"credit that was not spent":      {Host, func(r *raw, s uint32) { r.send(s, Credit, 0, 0, 0, 1) }},
		"the largest credit":             {Host, func(r *raw, s uint32) { r.send(s, Credit, 255, 255, 255, 255) }},
		"credit twice":                   {Guest, func(r *raw, s uint32) { r.send(s, Credit, credit(window)...) }},
		"data after the close":           {Host, func(r *raw, s uint32) { r.send(s, Close); r.send(s, Data, 1, 2) }},
		"a message after the close":      {Host, func(r *raw, s uint32) { r.send(s, Close); r.send(s, Message) }},
		"a second close":                 {Host, func(r *raw, s uint32) { r.send(s, Close); r.send(s, Close) }},
		"more data than the window": {Host, func(r *raw, s uint32) {
			for sent := 0; sent <= window; sent += MaxData - 1 {
				r.send(s, Data, numbered(MaxData)...)
			}
		}},
		"to a guest, too much data": {Guest, func(r *raw, s uint32) {
			for sent := 0; sent <= window; sent += MaxData - 1 {
				r.send(s, Data, numbered(MaxData)...)
			}
		}},
		"a flood of messages": {Host, func(r *raw, s uint32) {
			for range maxQueued + 1 {
				r.send(s, Message)
			}
		}},
		"a flood of ends": {Host, func(r *raw, s uint32) {
			for range maxQueued + 1 {
				r.send(s, End, Stdout)
			}
		}},
		"too many streams": {Guest, func(r *raw, s uint32) {
			for i := range uint32(maxStreams) {
				r.send(s+2+2*i, Open)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			conn, r, served := newRaw(t, c.role, func(*Stream, []byte) {})
			r.greet()
			var s *Stream
			if c.role == Host {
				s = open(t, conn, "")
				c.send(r, 1)
			} else {
				r.send(1, Open)
				c.send(r, 1)
			}
			wantProtocolError(t, ended(t, served))
			wantProtocolError(t, conn.Err())
			if s == nil {
				return
			}
			for { // events received before come first, then the error
				if _, err := s.Receive(); err != nil {
					if !errors.Is(err, ErrProtocol) && !errors.Is(err, io.EOF) {
						t.Errorf("the stream ended with %v", err)
					}
					break
				}
			}
			if _, err := conn.Open(nil); !errors.Is(err, ErrProtocol) {
				t.Errorf("a stream opened afterwards: %v", err)
			}
		})
	}
}

func TestConn_harmlessFrames(t *testing.T) {
	c, r, _ := newRaw(t, Host, nil)
	r.greet()
	r.send(2, Open) // a host accepts no requests
	if f := r.next(Close); f.Stream != 2 {
		t.Errorf("stream %d was closed", f.Stream)
	}
	r.send(99, Data, 1, 2) // might belong to a stream that this side has closed
	r.send(0, Pong)        // not requested
	r.send(0, Pong)
	s := open(t, c, "x")
	for range maxQueued {
		r.send(1, Message, 'm')
	}
	r.send(0, Ping, 'h', 'i')
	if f := r.next(Pong); string(f.Payload) != "hi" {
		t.Errorf("the pong carries %q", f.Payload)
	}
	for range maxQueued {
		if ev, err := s.Receive(); err != nil || string(ev.Payload) != "m" {
			t.Fatalf("got %+v, %v", ev, err)
		}
	}
	if c.Err() != nil {
		t.Errorf("the connection ended: %v", c.Err())
	}
}

func TestConn_manyOrders(t *testing.T) {
	streams := make(chan *Stream, 1)
	host, _ := newPair(t, func(s *Stream, _ []byte) { streams <- s })
	s := open(t, host, "")
	const orders = 5000
	for range orders {
		if err := s.SendMessage([]byte("signal")); err != nil {
			t.Fatal(err)
		}
	}
	guestEnd := <-streams
	for i := range orders {
		if _, err := guestEnd.Receive(); err != nil {
			t.Fatalf("order %d: %v", i, err)
		}
	}
}

func TestConn_Ping(t *testing.T) {
	host, guest := newPair(t, nil)
	if !host.Ping(nil) || !guest.Ping(nil) {
		t.Error("no answer")
	}
	canceled := make(chan struct{})
	close(canceled)
	c, r, _ := newRaw(t, Host, nil)
	r.greet()
	if c.Ping(canceled) {
		t.Error("a canceled ping returned true")
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = r.conn.Close() })
	if c.Ping(nil) {
		t.Error("a ping on a closed connection returned true")
	}
}

func TestConn_closeEndsStreams(t *testing.T) {
	for name, end := range map[string]func(host, guest *Conn){
		"closed here":  func(host, _ *Conn) { host.Close() },
		"closed there": func(_, guest *Conn) { guest.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			noMoreGoroutines(t, func() {
				host, guest := newPair(t, func(*Stream, []byte) {})
				var waiting sync.WaitGroup
				errs := make(chan error, 100)
				for range 20 {
					s := open(t, host, "")
					waiting.Go(func() { _, err := s.Receive(); errs <- err })
					waiting.Go(func() { errs <- s.Send(Stdin, make([]byte, 2*window)) })
				}
				eventually(t, "the streams are out of credit", func() bool {
					host.mu.Lock()
					defer host.mu.Unlock()
					for _, s := range host.streams {
						s.mu.Lock()
						tokens := s.tokens
						s.mu.Unlock()
						if tokens > 0 {
							return false
						}
					}
					return true
				})
				end(host, guest)
				waiting.Wait()
				close(errs)
				for err := range errs {
					if err == nil {
						t.Error("a pending call returned no error")
					}
				}
				<-host.Done()
				<-guest.Done()
			})
		})
	}
}

// A guest that was stopped reads nothing. The host must not wait for it without a limit.
func TestConn_guestDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostEnd, guestEnd := net.Pipe()
		c := NewConn(hostEnd, Host, nil)
		served := make(chan error, 1)
		go func() { served <- c.Serve() }()
		d := NewDecoder(guestEnd, MaxFromHost)
		go func() { _, _ = guestEnd.Write(frame(0, Hello, []byte{Version})) }()
		if f, err := d.Next(); err != nil || f.Type != Hello { // it reads only this
			t.Fatal(f, err)
		}
		began := time.Now()
		s, err := c.Open([]byte("x"))
		if err == nil {
			err = s.SendMessage([]byte("kill"))
		}
		if err == nil {
			t.Error("a send succeeded without a reader")
		}
		if took := time.Since(began); took > writeWithin {
			t.Errorf("given up after %v", took)
		}
		if err := <-served; err == nil || !errors.Is(c.Err(), errStalled) || !strings.Contains(c.Err().Error(), "read nothing") {
			t.Errorf("the connection ended with %v, %v", err, c.Err())
		}
		_ = guestEnd.Close()
	})
}

// A guest that was stopped after it read a request sends nothing more. A host that only waits must notice this too.
func TestConn_silentGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostEnd, guestEnd := net.Pipe()
		c := NewConn(hostEnd, Host, nil)
		go func() { _ = c.Serve() }()
		go func() { _, _ = guestEnd.Write(frame(0, Hello, []byte{Version})) }()
		go func() { _, _ = io.Copy(io.Discard, guestEnd) }() // sockets in between buffer what is written to the guest
		s, err := c.Open([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := s.Receive(); !errors.Is(err, errSilent) {
			t.Errorf("the stream ended with %v", err)
		}
		if took := time.Since(began); took < answerWithin || took > answerWithin+2*askAfter {
			t.Errorf("given up after %v", took)
		}
		_ = guestEnd.Close()
	})
}

func TestConn_silentCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostEnd, guestEnd := net.Pipe()
		c := NewConn(hostEnd, Host, nil)
		go func() { _ = c.Serve() }()
		say := make(chan []byte, 16)
		go func() {
			for f := range say {
				_, _ = guestEnd.Write(f)
			}
		}()
		say <- frame(0, Hello, []byte{Version})
		asked := 0
		go func() {
			d := NewDecoder(guestEnd, MaxFromHost)
			for {
				f, err := d.Next()
				if err != nil {
					close(say)
					return
				}
				if f.Type == Ping {
					asked++
					say <- frame(0, Pong, f.Payload)
				}
			}
		}()
		s, err := c.Open([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(24*time.Hour, func() { say <- frame(1, Message, []byte("done")) })
		if ev, err := s.Receive(); err != nil || string(ev.Payload) != "done" {
			t.Errorf("after a day: %+v, %v", ev, err)
		}
		if asked < 24*60 || len(c.ping) > 0 {
			t.Errorf("%d pings, %d answers queued for Ping", asked, len(c.ping))
		}
		c.Close()
		synctest.Wait()
		_ = guestEnd.Close()
	})
}

// A host may be stopped for long, for example by a debugger. Its guest waits.
func TestConn_hostDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostEnd, guestEnd := net.Pipe()
		c := NewConn(hostEnd, Guest, nil)
		go func() { _ = c.Serve() }()
		time.AfterFunc(time.Hour, func() {
			f, err := NewDecoder(guestEnd, MaxFromGuest).Next()
			if err != nil || f.Type != Hello {
				t.Errorf("after an hour: %+v, %v", f, err)
			}
			_ = guestEnd.Close()
		})
		<-c.Done()
	})
}
