//go:build !linux || (!amd64 && !arm64)

package local

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// process is one running command.
type process struct {
	commands *commands
	cmd      *exec.Cmd
	tty      bool
	stdin    *os.File      // our end of standard input, or the terminal
	typed    atomic.Uint32 // the last byte of input
	readers  []*os.File    // our ends of the outputs; a terminal is in stdin too

	emitting sync.Mutex // held while out runs
	out      provider.Sink
	over     bool          // the command has ended, and further output is dropped
	drained  chan struct{} // closed when every reader has ended

	mu     sync.Mutex
	reaped bool          // its pid may be another process's by now
	waited chan struct{} // closed when Wait returns
}

// startPipes starts the command with our own pipes. os/exec's pipes would wait for every process that holds them
// open.
func (p *process) startPipes() (err error) {
	var child, parent []*os.File
	defer func() {
		closeAll(child)
		if err != nil {
			closeAll(parent)
		}
	}()
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		r, w, err = os.Pipe()
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	child, parent = []*os.File{inR, outW, errW}, []*os.File{inW, outR, errR}
	if err != nil {
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	group(p.cmd)
	if err = p.cmd.Start(); err != nil {
		return err
	}
	p.stdin, p.readers = inW, []*os.File{outR, errR}
	p.listen()
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nil, or a pipe; no data can be lost
	}
}

// listen starts the readers. Wait waits for them.
func (p *process) listen() {
	var all sync.WaitGroup
	for i, r := range p.readers {
		all.Go(func() { p.copyOut(fumehood.Stdout+fumehood.Stream(i), r) })
	}
	go func() {
		all.Wait()
		close(p.drained)
	}()
}

func (p *process) copyOut(s fumehood.Stream, r *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		p.emit(s, buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			takeRest(r, buf, func(b []byte) { p.emit(s, b) })
			return
		}
		if err != nil { // io.EOF, or EIO from a terminal that no process has open
			return
		}
	}
}

// emit passes output to the sink.
func (p *process) emit(s fumehood.Stream, b []byte) {
	p.emitting.Lock()
	defer p.emitting.Unlock()
	if !p.over && len(b) > 0 {
		p.out(s, b)
	}
}

// drainFor is how long other processes may hold the output open after the program has ended.
const drainFor = 300 * time.Millisecond

// Wait returns when the program has ended and its output is delivered. If a child holds the output open, Wait reads
// for another drainFor. Later output is lost.
func (p *process) Wait(context.Context) (provider.Exit, error) {
	defer close(p.waited)
	err := p.cmd.Wait()
	// Between the reaping in cmd.Wait and the next line, Kill could hit another process with the same pid. The kernel
	// assigns pids in a cycle, so it would have to wrap around in that time.
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	p.drain()
	_ = p.stdin.Close() // also unblocks a Write to a program that does not read
	closeAll(p.readers)
	p.commands.mu.Lock()
	delete(p.commands.running, p)
	p.commands.mu.Unlock()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return provider.Exit{}, err
	}
	return exitOf(p.cmd.ProcessState), nil
}

func (p *process) drain() {
	t := time.NewTimer(drainFor)
	defer t.Stop()
	select {
	case <-p.drained:
	case <-t.C:
		cutOff(p)
	}
	p.emitting.Lock()
	defer p.emitting.Unlock()
	p.over = true
}

func (p *process) Write(b []byte) (int, error) {
	n, err := p.stdin.Write(b)
	if n > 0 {
		p.typed.Store(uint32(b[n-1]))
	}
	return n, err
}

func (p *process) CloseStdin() error {
	if p.tty {
		_, err := io.WriteString(p.stdin, wire.EndOfInput(byte(p.typed.Load()))) //nolint:gosec // stored from a byte
		return err
	}
	if err := p.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Signal sends a signal to the process group.
func (p *process) Signal(_ context.Context, sig int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	return signalGroup(p.cmd.Process, sig)
}

// Kill kills the process group. It always returns false, since a process may have left the group.
func (p *process) Kill(context.Context) bool {
	p.kill()
	return false
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.cmd.Process)
	}
}
