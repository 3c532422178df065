package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// streamProtocol is what a connection with a stream to a port is upgraded to. In both directions, frames follow the heads
// of request and answer: the number of bytes, in four bytes with the highest first, and these bytes. A frame of no bytes
// ends its direction, and the other one goes on, which the end of a connection could not express with TLS. A connection
// that ends before is a broken stream.
const streamProtocol = "fumehood-stream"

const (
	frameHead = 4
	// frameSize is the most bytes in a frame to the client. Those from the client may be larger, and are passed on in parts.
	frameSize = 64 << 10
	// hangUpPause is how often a client's death is looked for while a program reads nothing.
	hangUpPause = time.Second
)

// wantsStream reports whether a request's headers ask for an upgrade to streamProtocol.
func wantsStream(h http.Header) bool {
	return hasToken(h.Values("Connection"), "upgrade") && hasToken(h.Values("Upgrade"), streamProtocol)
}

// hasToken reports whether the values of a header, which are lists with commas, have a token in any case.
func hasToken(values []string, token string) bool {
	for each := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if strings.EqualFold(strings.TrimSpace(each), token) {
			return true
		}
	}
	return false
}

type portInput struct {
	Named
	Port int `path:"port" minimum:"1" maximum:"65535" doc:"TCP port, at an address of the service or its loopback address"`
}

func (s *Server) registerPorts() {
	o := s.operation(op{http.MethodGet, "/v1/sandboxes/{sandbox}/ports/{port}", "open-port", "Open a stream to a port of a service, from the inside: the sandbox needs no network", "Ports"})
	o.Description = "The request has the headers Connection: Upgrade and Upgrade: " + streamProtocol + ". After the answer 101, both sides send frames: the number of bytes as four bytes, the highest first, and these bytes. A frame of no bytes ends the sender's direction. A connection that ends before the frames that end both directions is a broken stream."
	o.DefaultStatus = http.StatusSwitchingProtocols
	o.Errors = append(slices.Clone(answered), http.StatusUpgradeRequired)
	huma.Register(s.api, o, func(ctx context.Context, in *portInput) (*huma.StreamResponse, error) {
		out, err := on(s.openPort)(ctx, in)
		return out, toAnswer(err)
	})
}

// openPort connects to a port, and then takes over the client's connection.
func (s *Server) openPort(ctx context.Context, l *lease, h *held, i *portInput) (*huma.StreamResponse, error) {
	svc, err := h.service(i.Service, "")
	if err != nil {
		return nil, err
	}
	if err := provider.CheckDial(svc); err != nil {
		return nil, err
	}
	if !requestOf(ctx).upgrade {
		why := newAnswer(http.StatusUpgradeRequired, fumehood.CodeConfig, opRead, "a stream to a port needs the headers Connection: Upgrade and Upgrade: "+streamProtocol)
		return nil, huma.ErrorWithHeaders(why, http.Header{"Connection": {"Upgrade"}, "Upgrade": {streamProtocol}})
	}
	done, err := l.beginStart() // the lease's end waits for the stream's
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, done) // after the answer, which is the stream
	if !enter(&s.streams, s.opts.Limits.Streams) {
		return nil, &fumehood.Error{
			Op: fmt.Sprintf("connect to port %d", i.Port), Class: fumehood.ErrLimit, Err: fmt.Errorf("%d streams are open", s.opts.Limits.Streams),
			Hint: "close some, or start the server with a higher --max-streams",
		}
	}
	context.AfterFunc(ctx, func() { s.streams.Add(-1) })
	dialing, cancel := within(ctx, l.life)
	defer cancel()
	inside, err := svc.Dial(dialing, i.Port)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer inside.Close()
		_, w := humago.Unwrap(c)
		client, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			fail(w, newAnswer(http.StatusInternalServerError, fumehood.CodeInfrastructure, "upgrade connection", err.Error()))
			return
		}
		defer client.Close()
		const head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + streamProtocol + "\r\n\r\n"
		if _, err := io.WriteString(client, head); err != nil {
			return
		}
		sent := passStream(l.life, client, both.Reader, inside)
		if a, ok := w.(*answer); ok { // for the log
			a.sent = sent
		}
	}}, nil
}

// passStream copies bytes between a client and a program until both directions have ended, one of the connections is
// broken, or life ends. It closes both, and returns how many bytes it has sent to the client.
func passStream(life context.Context, client net.Conn, from io.Reader, inside fumehood.Conn) (sent int64) {
	end := sync.OnceFunc(func() { // unblocks both directions
		client.Close()
		inside.Close()
	})
	defer end()
	defer context.AfterFunc(life, end)()
	read, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer end()
		frames := bufio.NewReaderSize(from, frameSize)
		err := toProgram(&watched{Conn: inside, client: client, end: end}, frames)
		close(read)
		if err == nil {
			_, _ = frames.ReadByte() // the client sends nothing more, and a read notices its death
		}
	}()
	sent, err := toClient(client, inside)
	if err == nil {
		<-read
	}
	end()
	<-ended
	return sent
}

// watched is a connection to a program. While a write waits, nothing is read from the client, so it looks whether the client has
// hung up: a program that never reads could otherwise hold the stream.
type watched struct {
	fumehood.Conn
	client net.Conn
	end    func() // unblocks the write

	mu      sync.Mutex
	writing bool
	timer   *time.Timer // nil before the first write
}

func (w *watched) Write(p []byte) (int, error) {
	w.begin()
	defer w.finish()
	return w.Conn.Write(p)
}

func (w *watched) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing = true; w.timer == nil {
		w.timer = time.AfterFunc(hangUpPause, w.look)
	} else {
		w.timer.Reset(hangUpPause)
	}
}

func (w *watched) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
	w.timer.Stop()
}

func (w *watched) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.writing:
	case hungUp(w.client):
		w.end()
	default:
		w.timer.Reset(hangUpPause)
	}
}

// toProgram passes on a client's frames until the one that ends their direction.
func toProgram(inside fumehood.Conn, frames *bufio.Reader) error {
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(frames, head[:]); err != nil {
			return err
		}
		left := int64(binary.BigEndian.Uint32(head[:]))
		if left == 0 {
			return inside.CloseWrite()
		}
		for left > 0 {
			if _, err := frames.Peek(1); err != nil {
				return err
			}
			part, err := frames.Peek(int(min(left, int64(frames.Buffered()))))
			if err == nil {
				_, err = inside.Write(part)
			}
			if err != nil {
				return err
			}
			_, _ = frames.Discard(len(part)) // it is buffered
			left -= int64(len(part))
		}
	}
}

// toClient sends frames of what a program sends, until the end of that direction. It returns how many bytes it has sent.
func toClient(client io.Writer, inside io.Reader) (sent int64, err error) {
	frame := make([]byte, frameHead+frameSize)
	for {
		n, err := inside.Read(frame[frameHead:])
		ended := errors.Is(err, io.EOF)
		if n > 0 || ended {
			binary.BigEndian.PutUint32(frame, uint32(n)) //nolint:gosec // at most frameSize
			written, werr := client.Write(frame[:frameHead+n])
			if sent += int64(written); werr != nil {
				return sent, werr
			}
		}
		switch {
		case ended && n == 0:
			return sent, nil
		case err != nil && !ended:
			return sent, err
		}
	}
}
