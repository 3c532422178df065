package engine

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/ring"
)

// Duplex is the standard input and output of a process in a container.
type Duplex struct {
	conn   client.HijackedResponse
	stderr *ring.Tail

	left    uint32 // bytes of the frame that Read is in
	closing sync.Once
}

// stderrKept is how much is kept of what a guest complains of.
const stderrKept = 16 << 10

// Attach connects to the main process of a container, which may be one that is not started yet: then
// nothing that it writes is missed.
func (c *Client) Attach(ctx context.Context, container string) (*Duplex, error) {
	res, err := c.api.ContainerAttach(ctx, container, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, c.translate(err, "attach to container")
	}
	return &Duplex{conn: res.HijackedResponse, stderr: ring.NewTail(stderrKept)}, nil
}

// Read reads standard output, and keeps the end of standard error aside.
func (d *Duplex) Read(p []byte) (int, error) {
	for d.left == 0 {
		stream, size, err := muxHead(d.conn.Reader)
		if err != nil {
			return 0, err
		}
		switch stream {
		case muxStdout:
			d.left = size
		case muxStderr:
			if _, err := io.CopyN(d.stderr, d.conn.Reader, int64(size)); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("the Engine sent a frame of stream %d", stream)
		}
	}
	n, err := d.conn.Reader.Read(p[:min(len(p), int(d.left))])
	d.left -= uint32(n) //nolint:gosec // at most left
	return n, err
}

// Write writes standard input.
func (d *Duplex) Write(p []byte) (int, error) { return d.conn.Conn.Write(p) }

// Close ends the connection.
func (d *Duplex) Close() error {
	d.closing.Do(d.conn.Close)
	return nil
}

// Complaint is the end of what the process wrote to standard error so far.
func (d *Duplex) Complaint() string {
	kept, _, _ := d.stderr.From(0, stderrKept) // a copy, for more may come
	return fumehood.Output{Bytes: kept}.Text()
}

// ExecStream is the standard input and output of an exec.
type ExecStream struct {
	*Exec
	out    *io.PipeReader
	stderr *ring.Tail
}

// Read reads standard output.
func (d *ExecStream) Read(p []byte) (int, error) { return d.out.Read(p) }

// Close gives the exec up, which ends its standard input.
func (d *ExecStream) Close() error {
	d.drop()
	return d.out.Close()
}

// Complaint is the end of what the program wrote to standard error. It waits for the end, which Close
// brings about.
func (d *ExecStream) Complaint() string {
	<-d.ended
	kept, _ := d.stderr.Bytes()
	return fumehood.Output{Bytes: kept}.Text()
}

// ExecDuplex starts a program by an exec, as a user, and returns its standard input and output. A privileged one has all
// capabilities, and should give up most of them itself.
func (c *Client) ExecDuplex(ctx context.Context, w *Watch, container, user string, privileged bool, args ...string) (*ExecStream, error) {
	pr, pw := io.Pipe()
	// Nobody reads yet: what the program says at once must not hold up who gives its start up.
	stop := context.AfterFunc(ctx, func() { _ = pr.Close() })
	stderr := ring.NewTail(stderrKept)
	e, err := c.exec(ctx, w, container, fumehood.Cmd{Args: args, User: user, StdinPipe: true}, privileged, func(s fumehood.Stream, p []byte) {
		if s == fumehood.Stdout {
			_, _ = pw.Write(p) // who reads no more has closed it
		} else {
			_, _ = stderr.Write(p) // it never fails
		}
	})
	gaveUp := !stop()
	if err != nil {
		return nil, err
	}
	if gaveUp {
		e.drop()
		<-e.ended
		return nil, ctx.Err()
	}
	go func() {
		<-e.ended
		pw.CloseWithError(io.EOF)
	}()
	return &ExecStream{e, pr, stderr}, nil
}
