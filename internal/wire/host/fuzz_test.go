package host

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// babble is a guest that sends a fuzzer's bytes once it has received a request.
type babble struct {
	greeting io.Reader
	rest     io.Reader

	mu     sync.Mutex
	heard  int
	asked  chan struct{} // closed when more than the greeting was received
	closed chan struct{}
	once   sync.Once
}

func (b *babble) Read(p []byte) (int, error) {
	if n, err := b.greeting.Read(p); err == nil {
		return n, nil
	}
	select {
	case <-b.asked:
		return b.rest.Read(p)
	case <-b.closed:
		return 0, io.EOF
	}
}

func (b *babble) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard <= greetingSize && b.heard+len(p) > greetingSize {
		close(b.asked)
	}
	b.heard += len(p)
	return len(p), nil
}

func (b *babble) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

const greetingSize = 9 // bytes: a header, and the version

// said concatenates the frames that a guest sends about the first command.
func said(frames ...[]byte) []byte { return slices.Concat(frames...) }

// FuzzClient checks that a command ends with a result or an error with a class, whatever a guest sends. It also
// checks that no more output is delivered than was sent.
func FuzzClient(f *testing.F) {
	say := func(text string) []byte { return frame(1, wire.Message, []byte(text)) }
	out := func(text string) []byte { return frame(1, wire.Data, append([]byte{wire.Stdout}, text...)) }
	for _, live := range []bool{false, true} {
		f.Add(said(say(started), out("hello"), say(exit(wire.Exit{Totals: [2]int64{5, 0}}))), true, live)
		f.Add(said(say(started), say(exit(wire.Exit{CPUUS: 8}))), true, live) // without a limit
		f.Add(said(say(started), out("hello, this is too much"), say(fine), frame(1, wire.Close, nil)), true, live)
		f.Add(said(say(failed(wire.NoProgram))), true, live)
		f.Add(said(say(started), frame(0, wire.Ping, []byte("x")), frame(1, wire.Credit, []byte{0, 0, 0, 1})), true, live)
		f.Add(said(frame(0, wire.Hello, []byte{wire.Version}), say(started), say(exit(wire.Exit{Code: -1, Lost: true}))), false, live)
		f.Add([]byte("Error response from daemon: no such container\n"), false, live)
	}
	f.Fuzz(func(t *testing.T, in []byte, greeted, live bool) {
		b := &babble{greeting: bytes.NewReader(nil), rest: bytes.NewReader(in), asked: make(chan struct{}), closed: make(chan struct{})}
		if greeted {
			b.greeting = bytes.NewReader(frame(0, wire.Hello, []byte{wire.Version}))
		}
		done := make(chan struct{})
		kept := &sink{}
		go func() {
			defer close(done)
			g := New(b)
			defer g.Close()
			p, err := g.Exec(t.Context(), command, live, kept.take)
			var exit provider.Exit
			if err == nil {
				exit, err = p.Wait(t.Context())
				p.Kill(t.Context())
			}
			switch known := []fumehood.Outcome{fumehood.Exited, fumehood.Signaled, fumehood.OutOfMemory, fumehood.Lost}; {
			case err != nil && fumehood.ClassOf(err) == nil:
				t.Errorf("error without a class: %v", err)
			case err == nil && !slices.Contains(known, exit.Outcome):
				t.Errorf("the command ended as %+v", exit)
			}
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the command did not end")
		}
		for i, o := range kept.out {
			if o.Len() > len(in) {
				t.Errorf("%d bytes sent, %d bytes of output on stream %d", len(in), o.Len(), i)
			}
		}
	})
}
