package guest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/wire"
)

// mostTries is how many workers are tried for a command.
const mostTries = 16

// youngFor is how long a command that has not ended holds a turn. Most commands end within it. Longer ones may wait
// instead of using a processor, so they must not hold up others.
const youngFor = 3 * time.Millisecond

// takeTurn waits until fewer than two commands for each processor are young. More at once would end no sooner, and
// each would need a worker, whose start takes several times as long as a short command.
func (g *guest) takeTurn() { g.turns <- struct{}{} }

// endTurn lets the next command start.
func (g *guest) endTurn() { <-g.turns }

// handOver gives the command to a worker. If writing to a worker fails, that worker has not received the command, and
// the next one is tried.
func (c *command) handOver(childFDs [3]int) (err error) {
	until := time.Now().Add(readyWithin)
	for range mostTries {
		if c.w, err = c.g.worker(); err != nil {
			return err
		}
		if err = c.g.await(c.w, until); err == nil {
			err = c.start(childFDs)
		}
		if err == nil {
			return nil
		}
		c.w.retire()
		if time.Now().After(until) {
			break
		}
	}
	return err
}

// closeOurs closes our side of the pipes or of the terminal.
func (c *command) closeOurs() {
	for _, o := range c.output {
		o.close()
	}
	if c.input != nil {
		_ = c.input.Close() // a terminal is already closed
	}
}

// plumb creates the command's pipes or terminal, and returns the command's three files; -1 for those that it does not
// create.
func (c *command) plumb() (childFDs [3]int, err error) {
	childFDs = [3]int{-1, -1, -1}
	if c.req.Terminal != nil {
		own, terminal, err := openTerminal(*c.req.Terminal)
		if err != nil {
			return childFDs, err
		}
		c.input, c.output = own, []*outlet{{c: c, fd: -1, file: own}}
		c.tails = []*ring.Tail{ring.NewTail(c.req.Caps[0])}
		childFDs[0] = terminal
		return childFDs, nil
	}
	defer func() {
		if err != nil {
			closeAll(childFDs)
			c.closeOurs()
		}
	}()
	if c.req.Stdin {
		their, own, err := pipe(0)
		if err != nil {
			return childFDs, err
		}
		childFDs[0], c.input = their, newPatient(own, "input")
	}
	for i := range 2 {
		their, own, err := pipe(1)
		if err != nil {
			return childFDs, err
		}
		c.output = append(c.output, &outlet{c: c, i: i, fd: own})
		if len(c.tails) <= i { // otherwise it goes on with those of the program before
			c.tails = append(c.tails, ring.NewTail(c.req.Caps[i]))
		}
		childFDs[i+1] = their
	}
	return childFDs, nil
}

// pipe creates a pipe for a command's standard stream fd. child is blocking, as programs expect; parent is
// non-blocking.
func pipe(fd int) (child, parent int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, -1, os.NewSyscallError("pipe2", err)
	}
	if fd > 0 {
		p[0], p[1] = p[1], p[0]
	}
	_, _, _ = unix.RawSyscall(unix.SYS_FCNTL, uintptr(p[0]), unix.F_SETFL, 0) // cannot fail for a pipe
	return p[0], p[1], nil
}

// closeAll closes the file descriptors that are not -1.
func closeAll(files [3]int) {
	for _, fd := range files {
		if fd >= 0 {
			wire.RawClose(fd)
		}
	}
}

// start sends the command to the worker.
func (c *command) start(childFDs [3]int) error {
	fds := make([]int, 3)
	for i, fd := range childFDs {
		switch {
		case fd >= 0:
		case c.req.Terminal != nil:
			fd = childFDs[0]
		default:
			fd = int(c.g.null.Fd())
		}
		fds[i] = fd
	}
	dir := c.req.Dir
	if len(dir) == 0 {
		wd, err := os.Getwd()
		if err != nil {
			return err
		}
		dir = []byte(wd)
	}
	t := task{Start: &start{
		Args: c.req.Args, Env: environment(c.req.Env), Dir: dir, Terminal: c.req.Terminal != nil, Rlimits: c.req.Rlimits, Terse: c.req.Terse && c.id == 0,
	}}
	c.w.since.Store(now())
	c.cpu.mark()
	c.markProgram()
	err := post(c.w.socket, t, fds)
	if errors.Is(err, unix.ETOOMANYREFS) {
		err = c.bequeath(t, fds)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotReady, err)
	}
	c.pressing = time.AfterFunc(pressFirst, func() { c.g.press(c.w, pressLast, c.done) }) // most commands have ended by then
	return nil
}

// markProgram makes killAll spare the service's own program.
func (c *command) markProgram() {
	if c.req.ID == wire.ProgramID {
		c.g.mu.Lock()
		defer c.g.mu.Unlock()
		c.w.program = true
	}
}

// bequeath hands the command to a new worker that inherits its files. The kernel limits how many descriptors of a user wait in
// sockets, and counts those of all sandboxes: one of them can keep the others from sending any.
func (c *command) bequeath(t task, fds []int) error {
	c.g.release(c.w)
	w, err := c.g.spawn(fds...)
	if err != nil {
		return err
	}
	c.w = w
	if err := c.g.await(w, time.Now().Add(readyWithin)); err != nil {
		return err
	}
	c.w.since.Store(now())
	c.cpu.mark()
	c.markProgram()
	return post(c.w.socket, t, nil)
}

// environment returns the environment of this process with the variables of more added. more takes precedence.
func environment(more [][]byte) [][]byte {
	named := map[string]bool{}
	for _, kv := range more {
		name, _, _ := strings.Cut(string(kv), "=")
		named[name] = true
	}
	var env [][]byte
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !named[name] {
			env = append(env, []byte(kv))
		}
	}
	return append(env, more...)
}
