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
	// drainWithin is how long output is read after the command's process has ended, while a child holds the output
	// open. Output written before the end is never lost.
	drainWithin = 300 * time.Millisecond
	// pumpAfter is the delay before the guest starts to read the output of a command that is not followed live. Most
	// commands have ended by then, and their output is in the pipe. A command that writes more than a pipe holds, 64
	// KiB, blocks until then.
	pumpAfter = 3 * time.Millisecond
	// pipeSize is the largest capacity of our pipes. It is the default of /proc/sys/fs/pipe-max-size, above which
	// unprivileged code in the container cannot raise a pipe's capacity.
	pipeSize = 1 << 20
)

var channels = []byte{wire.Stdout, wire.Stderr}

// pieces holds buffers for output, one for each outlet that is being read.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// outlet is our side of one output of a command.
type outlet struct {
	c     *command
	i     int
	fd    int      // of a pipe until await is called; then -1
	file  *patient // set by await
	atEnd bool
}

// close closes our side.
func (o *outlet) close() {
	switch {
	case o.file != nil:
		_ = o.file.Close()
	case o.fd >= 0:
		wire.RawClose(o.fd)
	}
	o.fd = -1
}

// await turns the file descriptor into a file that can be waited for.
func (o *outlet) await() {
	if o.file == nil {
		o.file, o.fd = newPatient(o.fd, "output"), -1
	}
}

// pump reads the output and passes it to took, until the end of the output. Once the command has ended and
// drainWithin is over, it only takes what is already in the pipe.
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
			// None of the command's processes has the terminal open now. One may open /dev/tty again.
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

// empty reads what is in a pipe now, at most as much as a pipe can hold.
func (o *outlet) empty(fd int, buf []byte) {
	for left := pipeSize; left > 0; {
		n, err := wire.RawRead(fd, buf)
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

// finish reads what is in an output on which await was not called yet. The command has ended. finish returns true if
// a child holds the output open, so that the caller has to wait for more.
func (o *outlet) finish() (open bool) {
	if o.file == nil {
		piece := pieces.Get().(*[32 << 10]byte)
		defer pieces.Put(piece)
		o.empty(o.fd, piece[:])
	}
	return o.file == nil && !o.atEnd
}

// part gives up an output. It drains and discards later output, so that a surviving child that writes is not killed
// by SIGPIPE.
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

// took stores what the command wrote, or sends it to the host if the command is live.
func (c *command) took(i int, p []byte) {
	if len(p) == 0 {
		return
	}
	if !c.req.Live {
		_, _ = c.tails[i].Write(p) // never fails
		return
	}
	c.totals[i] += int64(len(p))
	_ = c.s.Send(channels[i], p) // if the host is gone, the output is drained all the same
}
