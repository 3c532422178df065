package host

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// fake is a guest that follows a test's script.
type fake struct {
	conn   net.Conn
	opened chan wire.Request
	orders chan wire.Order
	ended  chan struct{} // closed when nothing more is read

	mu     sync.Mutex
	frames map[wire.Type]int // frames that the host sent
}

// newFake connects a client to a guest that has sent its greeting.
func newFake(t *testing.T) (*Guest, *fake) {
	t.Helper()
	hostEnd, guestEnd := net.Pipe()
	g := New(hostEnd)
	f := fakeOn(t, guestEnd)
	t.Cleanup(g.Close)
	return g, f
}

// fakeOn creates a guest at one end of a connection, and sends its greeting.
func fakeOn(t *testing.T, conn net.Conn) *fake {
	t.Helper()
	f := &fake{
		conn: conn, opened: make(chan wire.Request, 100), orders: make(chan wire.Order, 100),
		ended: make(chan struct{}), frames: map[wire.Type]int{},
	}
	go f.read(t)
	f.send(0, wire.Hello, wire.Version)
	t.Cleanup(func() {
		_ = conn.Close()
		<-f.ended
	})
	return f
}

// read receives what the host sends.
func (f *fake) read(t *testing.T) {
	defer close(f.ended)
	for d := wire.NewDecoder(f.conn, wire.MaxFromHost); ; {
		fr, err := d.Next()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.frames[fr.Type]++
		f.mu.Unlock()
		switch fr.Type {
		case wire.Open:
			r, err := wire.DecodeRequest(fr.Payload)
			if err != nil {
				t.Error(err)
			}
			f.opened <- r
		case wire.Message:
			var o wire.Order
			if err := json.Unmarshal(fr.Payload, &o); err != nil {
				t.Error(err)
			}
			f.orders <- o
		case wire.Ping:
			go f.send(0, wire.Pong)
		}
	}
}

func (f *fake) count(t wire.Type) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.frames[t]
}

func frame(stream uint32, t wire.Type, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, stream)
	n := len(payload)
	return append(append(b, byte(t), byte(n>>16), byte(n>>8), byte(n)), payload...)
}

// send sends a frame. It ignores errors, since the host may have closed the connection.
func (f *fake) send(stream uint32, t wire.Type, payload ...byte) {
	_, _ = f.conn.Write(frame(stream, t, payload))
}

func (f *fake) say(stream uint32, text string) { f.send(stream, wire.Message, []byte(text)...) }

func (f *fake) output(stream uint32, channel byte, text string) {
	f.send(stream, wire.Data, append([]byte{channel}, text...)...)
}

// reply returns a packed reply.
func reply(r wire.Reply) string { return string(wire.Append(nil, &r)) }

func exit(e wire.Exit) string { return reply(wire.Reply{Exit: &e}) }

func failed(name string) string {
	return reply(wire.Reply{Failed: &wire.Failed{What: name, Text: "why not"}})
}

// Replies of a guest about a command that succeeds.
var (
	started = reply(wire.Reply{Started: &wire.Started{}})
	fine    = exit(wire.Exit{UserUS: 1, SystemUS: 2, MaxRSS: 3, Peak: 4})
)

// sink stores output.
type sink struct {
	mu  sync.Mutex
	out [3]bytes.Buffer
}

func (s *sink) take(stream fumehood.Stream, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out[stream].Write(p)
}

// within bounds the wait for things that happen at once.
const within = 30 * time.Second

// soon runs f, and fails the test if f does not return within within.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("not within %v", within)
	}
}

// against calls ask with a guest that runs say when it receives a request. ask must return soon.
func against(t *testing.T, say func(f *fake), ask func(g *Guest)) {
	t.Helper()
	g, f := newFake(t)
	soon(t, func() {
		go func() {
			<-f.opened
			say(f)
		}()
		ask(g)
	})
}

// run runs a command on a guest that follows script. script gets the number of the command's stream.
func run(t *testing.T, g *Guest, f *fake, cmd fumehood.Cmd, live bool, script func(stream uint32)) (exit provider.Exit, out *sink, err error) {
	t.Helper()
	out = &sink{}
	soon(t, func() {
		go func() {
			<-f.opened
			script(uint32(2*f.count(wire.Open) - 1)) //nolint:gosec // a few
		}()
		var p *Process
		if p, err = g.Exec(t.Context(), cmd, live, out.take); err == nil {
			exit, err = p.Wait(t.Context())
		}
	})
	return exit, out, err
}
