package guest

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// drainWithin is how long output is waited for after the command's process has ended, when a child of it
	// holds the output open. What was written before the end is never lost by it.
	drainWithin = 300 * time.Millisecond
	// pumpAfter is from when on the output of a command is awaited of which the host gets to know at its end: most have
	// ended by then, and what they wrote is in the pipe. One that writes more than a pipe holds, 64 KiB, is held up
	// until then.
	pumpAfter = 3 * time.Millisecond
	// pipeSize is the most that a pipe of ours holds (the kernel's default; nobody inside can raise it beyond
	// /proc/sys/fs/pipe-max-size, 1 MiB).
	pipeSize = 1 << 20
)

var channels = []byte{wire.Stdout, wire.Stderr}

// pieces are buffers for output, one for each outlet that is pumped.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// outlet is our side of one output of a command.
type outlet struct {
	c     *command
	i     int
	fd    int      // of a pipe, while nobody waits for what comes; else -1
	file  *patient // from when on somebody does
	atEnd bool
}

// close closes our side.
func (o *outlet) close() {
	switch {
	case o.file != nil:
		_ = o.file.Close()
	case o.fd >= 0:
		_ = unix.Close(o.fd)
	}
	o.fd = -1
}

// await has what comes awaited.
func (o *outlet) await() {
	if o.file == nil {
		o.file, o.fd = newPatient(o.fd, "output"), -1
	}
}

// pump moves the output to the host, or to where its end is kept, until it is at its end; or, when the command has ended
// and drainWithin is over, until there is nothing in it.
func (o *outlet) pump() {
	piece := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(piece)
	buf := piece[:]
	pause := time.Millisecond
	for {
		n, err := o.file.Read(buf)
		o.c.took(o.i, buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = wire.Control(o.file.file, func(fd int) error {
				o.empty(fd, buf)
				return nil
			})
			return
		}
		if errors.Is(err, unix.EIO) && !isClosed(o.c.exited) {
			// A terminal that none of the command's processes has open now. One may open /dev/tty again.
			select {
			case <-o.c.exited:
			case <-time.After(pause):
			}
			pause = min(2*pause, lookEvery)
			continue
		}
		if err != nil {
			o.atEnd = true
			return
		}
	}
}

// empty takes what is in a pipe now, at most as much as one can hold.
func (o *outlet) empty(fd int, buf []byte) {
	for left := pipeSize; left > 0; {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return
		case n == 0:
			o.atEnd = true
			return
		}
		o.c.took(o.i, buf[:n])
		left -= n
	}
}

// finish takes what is in an output that nobody has awaited yet. The command has ended; where a child of it holds the
// output open, that is awaited from now on.
func (o *outlet) finish() (open bool) {
	if o.file == nil {
		piece := pieces.Get().(*[32 << 10]byte)
		defer pieces.Put(piece)
		o.empty(o.fd, piece[:])
	}
	return o.file == nil && !o.atEnd
}

// part gives up an output: a child of the command that lives on may write, and is not ended by that.
func (o *outlet) part() {
	if o.atEnd {
		o.close()
		return
	}
	o.await()
	o.file.readUntil(time.Time{})
	go func() {
		_, _ = io.Copy(io.Discard, o.file)
		_ = o.file.Close()
	}()
}

// took is told what the command wrote.
func (c *command) took(i int, p []byte) {
	if len(p) == 0 {
		return
	}
	if !c.req.Live {
		_, _ = c.tails[i].Write(p) // it never fails
		return
	}
	c.totals[i] += int64(len(p))
	_ = c.s.Send(channels[i], p) // to a host that is gone: the output is drained all the same
}
