package engine

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/ring"
)

// Duplex is the standard input and output of a process in a container.
type Duplex struct {
	conn   client.HijackedResponse
	stderr *ring.Tail

	left    uint32 // bytes left of the frame that Read is in
	closing sync.Once
}

// stderrKept is how much of a guest's standard error is kept, in bytes.
const stderrKept = 16 << 10

// Attach connects to the main process of a container. If the container is not started yet, all of its output is
// received.
func (c *Client) Attach(ctx context.Context, container string) (*Duplex, error) {
	res, err := c.api.ContainerAttach(ctx, container, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, c.translate(err, "attach to container")
	}
	return &Duplex{conn: res.HijackedResponse, stderr: ring.NewTail(stderrKept)}, nil
}

// Read reads standard output. It stores the end of standard error for Complaint.
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

// Write writes to standard input.
func (d *Duplex) Write(p []byte) (int, error) { return d.conn.Conn.Write(p) }

// Close closes the connection. It may be called twice.
func (d *Duplex) Close() error {
	d.closing.Do(d.conn.Close)
	return nil
}

// Complaint returns the end of what the process has written to standard error so far.
func (d *Duplex) Complaint() string {
	kept, _, _ := d.stderr.From(0, stderrKept) // a copy: more may arrive
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

// Close abandons the exec and closes its standard input.
func (d *ExecStream) Close() error {
	d.drop()
	return d.out.Close()
}

// Complaint returns the end of what the program wrote to standard error. It waits until the stream has ended; Close
// ends it.
func (d *ExecStream) Complaint() string {
	<-d.ended
	kept, _ := d.stderr.Bytes()
	return fumehood.Output{Bytes: kept}.Text()
}

// ExecDuplex starts a program by an exec as user, and returns its standard input and output. A privileged program has
// all capabilities, and should drop most of them itself.
func (c *Client) ExecDuplex(ctx context.Context, w *Watch, container, user string, privileged bool, args ...string) (*ExecStream, error) {
	pr, pw := io.Pipe()
	// Nothing reads yet: early output must not block a caller that gives up the start.
	stop := context.AfterFunc(ctx, func() { _ = pr.Close() })
	stderr := ring.NewTail(stderrKept)
	e, err := c.exec(ctx, w, container, fumehood.Cmd{Args: args, User: user, StdinPipe: true}, privileged, func(s fumehood.Stream, p []byte) {
		if s == fumehood.Stdout {
			_, _ = pw.Write(p) // fails only after the reader has closed the pipe
		} else {
			_, _ = stderr.Write(p) // never fails
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
