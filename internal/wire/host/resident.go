package host

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// ErrTaken means that a resident guest of that name already exists.
var ErrTaken = errors.New("resident guest already exists")

const (
	// proveWithin bounds the wait for a resident guest's proof.
	proveWithin = 15 * time.Second
	// askWithin bounds the wait for an answer that takes the guest no work.
	askWithin = 30 * time.Second
)

// ResidentConn returns a connection to a resident guest's socket for Meet. It takes over conn.
func ResidentConn(conn net.Conn) io.ReadWriteCloser { return quiet(conn) }

// Meet connects to a resident guest over rw, and both sides prove to each other that they know the secret. If that
// fails, the error is an ErrUnavailable. It also matches io.EOF if no guest answered.
func Meet(ctx context.Context, rw io.ReadWriteCloser, secret []byte) (*Guest, error) {
	if err := proveTo(ctx, rw, secret, func() error { return nil }); err != nil {
		return nil, err
	}
	g := New(rw)
	g.resident.Store(true)
	return g, nil
}

// Carry makes rw, a relay to a resident guest, the transport of l. Its errors are those of Meet.
func Carry(ctx context.Context, l *wire.Lasting, rw io.ReadWriteCloser, secret []byte, window time.Duration) error {
	return proveTo(ctx, rw, secret, func() error { return l.Continue(rw, window) })
}

// NewLasting returns a connection to a resident guest over l, which Carry has given a transport.
func NewLasting(l *wire.Lasting) *Guest {
	g := New(l)
	g.resident.Store(true)
	return g
}

// proveTo exchanges proofs with a resident guest, and calls then.
func proveTo(ctx context.Context, rw io.ReadWriteCloser, secret []byte, then func() error) error {
	ctx, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = rw.Close() })
	err := wire.Prove(rw, wire.Host, secret)
	if err == nil {
		err = then()
	}
	if !stop() || err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the resident guest has not proved its identity: %w", err)}
	}
	return nil
}

// Reside makes the guest outlive its connection, and listen on an abstract unix socket. It ends when nobody has been
// connected for linger; 0 means never. Only a guest that never ends keeps detached commands. If the name is in use, the
// error is an ErrTaken.
func (g *Guest) Reside(ctx context.Context, name string, secret []byte, linger time.Duration) error {
	var answer wire.Resides
	if err := g.ask(ctx, wire.Request{Reside: &wire.Reside{Name: name, Secret: secret, LingerMS: linger.Milliseconds()}}, &answer); err != nil {
		return err
	}
	switch {
	case answer.Taken:
		return ErrTaken
	case answer.Failed != "":
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("make the guest resident: %.200s", answer.Failed)}
	}
	g.resident.Store(linger == 0)
	return nil
}

// ask sends a request that the guest answers with a single message.
func (g *Guest) ask(ctx context.Context, r wire.Request, answer any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askWithin, fmt.Errorf("no answer within %v", askWithin))
	defer cancel()
	s, err := g.roundTrip(ctx, r, answer)
	if err == nil {
		s.Close()
	}
	return err
}

// roundTrip sends a request and waits for the answer, the guest's first message. It returns the open stream.
func (g *Guest) roundTrip(ctx context.Context, r wire.Request, answer any) (*wire.Stream, error) {
	s, err := g.request(r)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.Close)
	switch ev, err := s.Receive(); {
	case !stop() || err != nil:
		s.Close()
		return nil, g.answerError(ctx, err)
	case ev.Type != wire.Message || json.Unmarshal(ev.Payload, answer) != nil:
		s.Close()
		return nil, protocolError("invalid answer")
	}
	return s, nil
}

// answerError returns the error of a request whose stream has ended.
func (g *Guest) answerError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return &fumehood.Error{Class: fumehood.ErrCanceled, Err: context.Cause(ctx)}
	case errors.Is(err, wire.ErrProtocol):
		return protocolError("%w", err)
	}
	return lostError(err)
}

// Reserve makes a resident guest reserve a number above the given one. It is for a detached command that another
// user's resident guest will keep. Until the number is forgotten, Detached lists it with that user and without
// arguments.
func (g *Guest) Reserve(ctx context.Context, user string, above int) (int, error) {
	var answer wire.Reserved
	if err := g.ask(ctx, wire.Request{Reserve: &wire.Reserve{User: []byte(user), Above: above}}, &answer); err != nil {
		return 0, err
	}
	switch {
	case answer.Failed != nil:
		return 0, startFailure(answer.Failed)
	case answer.ID <= above:
		return 0, protocolError("reserved number %d is not above %d", answer.ID, above)
	}
	return answer.ID, nil
}

// Detached lists a resident guest's detached commands, and the numbers that it has reserved.
func (g *Guest) Detached(ctx context.Context) ([]provider.DetachedInfo, error) {
	s, err := g.request(wire.Request{List: &wire.List{}})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, askWithin, fmt.Errorf("no answer within %v", askWithin))
	defer cancel()
	defer context.AfterFunc(ctx, s.Close)()
	list, err := io.ReadAll(io.LimitReader(&wire.Content{Stream: s, Channel: wire.Stdout, Wrong: func(_ wire.Event, err error) error {
		switch {
		case errors.Is(err, io.EOF) && g.conn.Load().Err() == nil:
			return io.EOF
		case err != nil:
			return g.answerError(ctx, err)
		}
		return protocolError("invalid list of detached commands")
	}}, wire.MaxList+1))
	if err != nil {
		return nil, err
	}
	if len(list) > wire.MaxList {
		return nil, protocolError("list of detached commands too long")
	}
	return decodeList(list, time.Now())
}

// decodeList decodes a list and checks it, including the order of the numbers.
func decodeList(text []byte, now time.Time) ([]provider.DetachedInfo, error) {
	var entries []wire.Detached
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, protocolError("%w", err)
	}
	if len(entries) > wire.MaxDetached {
		return nil, protocolError("too many detached commands: %d", len(entries))
	}
	all := make([]provider.DetachedInfo, 0, len(entries))
	const oldest = int64(1<<63-1) / int64(time.Microsecond)
	last := 0
	for _, d := range entries {
		if d.ID <= last || d.AgeUS < 0 || d.AgeUS > oldest || (len(d.Args) == 0) == (len(d.User) == 0) {
			return nil, protocolError("invalid detached command: number %d, %d µs old, %d arguments", d.ID, d.AgeUS, len(d.Args))
		}
		last = d.ID
		info := provider.DetachedInfo{ID: d.ID, User: string(d.User), Started: now.Add(-time.Duration(d.AgeUS) * time.Microsecond), Ended: d.Ended, Stdin: d.Stdin}
		for _, a := range d.Args {
			info.Args = append(info.Args, string(a))
		}
		all = append(all, info)
	}
	return all, nil
}

// Detached is a detached command of a resident guest, as seen by one host. It keeps running when that host is gone.
type Detached struct {
	*Process
	g *Guest
}

// Detach sends cmd to the guest as a detached command, at most once, and returns when it runs. The guest must be
// resident. id is the number reserved for the command; 0 for the guest's next one.
func (g *Guest) Detach(ctx context.Context, cmd fumehood.Cmd, id int, out provider.Sink) (*Detached, error) {
	if !g.resident.Load() {
		return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("the guest ends with its host, and keeps no detached commands")}
	}
	p := newProcess(cmd, false, out)
	p.watching = true
	request := p.request(cmd)
	request.Detach, request.ID = true, id
	request.WallMS = (cmd.Timeout + time.Millisecond - 1).Milliseconds() // 0 means no limit
	d, err := g.awaitDetached(ctx, p, wire.Request{Exec: &request})
	if err == nil && id != 0 && d.id != id {
		p.close()
		return nil, protocolError("detached command has number %d, want %d", d.id, id)
	}
	return d, err
}

// Join watches a detached command that any host has started before.
func (g *Guest) Join(ctx context.Context, info provider.DetachedInfo, out provider.Sink) (*Detached, error) {
	return g.watch(ctx, fumehood.Cmd{StdinPipe: info.Stdin}, wire.Join{ID: info.ID}, out)
}

// Program watches the service's own program that any host has started before. Without follow, its Wait returns once the
// output so far is delivered; if the program has not ended, it is reported as lost.
func (g *Guest) Program(ctx context.Context, follow bool, out provider.Sink) (*Detached, error) {
	return g.watch(ctx, fumehood.Cmd{}, wire.Join{ID: wire.ProgramID, Kept: !follow}, out)
}

func (g *Guest) watch(ctx context.Context, cmd fumehood.Cmd, join wire.Join, out provider.Sink) (*Detached, error) {
	p := newProcess(cmd, false, out)
	p.watching = true
	return g.awaitDetached(ctx, p, wire.Request{Join: &join})
}

// Restart sets when the guest starts the service's own program again. Without a program it is an ErrConfig.
func (g *Guest) Restart(ctx context.Context, r wire.Restart) error {
	var answer wire.Restarts
	if err := g.ask(ctx, wire.Request{Restart: &r}, &answer); err != nil {
		return err
	}
	if answer.Failed != nil {
		return startFailure(answer.Failed)
	}
	return nil
}

func (g *Guest) awaitDetached(ctx context.Context, p *Process, r wire.Request) (*Detached, error) {
	if err := g.begin(ctx, p, r); err != nil {
		return nil, err
	}
	return &Detached{Process: p, g: g}, nil
}

// ID returns the command's number in its guest.
func (d *Detached) ID() int { return d.id }

// Wait requests the output, and returns how the command ended once it is delivered.
func (d *Detached) Wait(ctx context.Context) (provider.Exit, error) {
	d.followed.Store(true)
	d.order(wire.Order{Follow: true})
	return d.Process.Wait(ctx)
}

// Forget drops the command from the guest. The command must have ended.
func (d *Detached) Forget(ctx context.Context) error {
	if err := d.g.Forget(ctx, d.id); err != nil {
		return err
	}
	if !d.followed.Load() { // otherwise it ends when all output is delivered
		d.close()
	}
	return nil
}

// Forget drops a detached command, which must have ended, or a reserved number. It does nothing if there is no such
// number.
func (g *Guest) Forget(ctx context.Context, id int) error {
	var answer wire.Forgot
	if err := g.ask(ctx, wire.Request{Forget: &wire.Forget{ID: id}}, &answer); err != nil {
		return err
	}
	if answer.Running {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("the command has not ended"), Hint: "kill it first"}
	}
	return nil
}

// at handles the offset of a stream's next output.
func (p *Process) at(ev wire.Event) error {
	i := ev.Channel - wire.StdoutAt
	p.s.Consume(len(ev.Payload))
	p.offset[i] = append(p.offset[i], ev.Payload...)
	switch n := len(p.offset[i]); {
	case n > 8:
		return protocolError("an offset of %d bytes", n)
	case n < 8:
		return nil
	}
	next := int64(binary.BigEndian.Uint64(p.offset[i])) //nolint:gosec // a negative one is rejected
	p.offset[i] = nil
	if next <= p.kept[i] {
		return protocolError("output continues at byte %d after byte %d", next, p.kept[i])
	}
	select {
	case <-p.skips:
		if p.skip != nil {
			p.skip(fumehood.Stream(i+wire.Stdout), next-p.kept[i])
		}
	case <-p.closed:
	}
	p.kept[i] = next
	return nil
}
