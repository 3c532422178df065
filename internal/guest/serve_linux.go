package guest

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// guest is the state of the guest program. It serves one host, or every host if it is resident.
type guest struct {
	self   string // the path of this program
	tasks  []int  // see setup.Run; nil if this process counts against the limits of commands
	slack  int    // the timer slack of the commands' threads, see relax
	null   *os.File
	cgroup cgroup
	limits limits // of the guest, and of its workers once they run

	prepared chan struct{} // closed when commands can run
	turns    chan struct{} // has an element for each young command, see takeTurn

	clearing sync.Mutex   // held by killAll
	kills    atomic.Int64 // how often killAll has begun

	mu      sync.Mutex
	workers map[int]*supervisor // all living workers, by pid
	idle    []*supervisor
	closing bool
	// trimming is true while a call of trim is scheduled.
	trimming bool
	latest   *wire.Conn       // the connection that was made last
	hosts    int              // connected hosts, not counting the first connection
	lasting  wire.Lastings    // of relays
	parted   *sync.Cond       // on mu: hosts has become 0, or has been 0 for linger
	alone    time.Time        // when hosts became 0
	resident bool             // see reside
	linger   time.Duration    // how long a resident waits for the next host; 0 means forever
	secret   []byte           // of hosts; nil if not resident
	detached map[int]*command // the detached commands that are not forgotten, by number
	reserved map[int]reservation
	program  *command      // the service's own, or the one before while it is started again; nil for none
	again    *wire.Restart // when the guest starts it again; nil as long as a host does that
	last     int           // the highest number given to a detached command
	commands tally         // those that are no health checks
}

const (
	// spareThreads is how many threads are started before a limit can be reached. The Go runtime aborts when it needs
	// a thread and the limit on processes is reached.
	spareThreads       = 8
	spareWorkerThreads = 2
	// gcPercent is GOGC. It is low because the guest's heap counts against the container's memory limit.
	gcPercent = 50
	// stoppedBefore bounds how long before the end of the connection the last SIGCONT may have come for the guest to
	// count as stopped at that end.
	stoppedBefore = time.Second
)

// stdio is a guest's connection to its host.
type stdio struct{ in, out *os.File }

func (s stdio) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// Close closes both directions.
func (s stdio) Close() error {
	_ = s.in.Close()
	return s.out.Close()
}

// serve serves the host until the connection ends, and then kills everything that it started, unless the guest is
// resident. It returns the exit code. tasks are those of setup.Run; without them commands run in this process's control group.
func serve(self string, tasks []int, stdin, stdout, stderr *os.File) int {
	complain := func(action string, err error) int {
		_, _ = io.WriteString(stderr, "fumehood-guest: "+action+": "+err.Error()+"\n")
		return 1
	}
	// This comes first, since a non-dumpable process cannot do some of it.
	g := &guest{self: self, tasks: tasks, slack: relax(), workers: map[int]*supervisor{}, detached: map[int]*command{}, reserved: map[int]reservation{}, prepared: make(chan struct{}), cgroup: noCgroup, limits: limitsOf(os.Getpid())}
	g.parted = sync.NewCond(&g.mu)
	if contained.Load() {
		g.cgroup = openCgroup(cgroupRoot)
	}
	var err error
	if g.null, err = openNull(); err != nil {
		return complain("open the null device", err)
	}
	conn, err := pollable(stdin, stdout, g.null)
	if err != nil {
		return complain("prepare standard input and output", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return complain("become a subreaper", err)
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // otherwise the commands could trace this process
	handleIgnored()
	if g.hasRoom() {
		if w, err := g.spawn(); err == nil { // otherwise the first command tries again
			g.idle = append(g.idle, w)
		}
	}
	// The guest's work is short and sequential: waking another thread would cost more than it saves.
	runtime.GOMAXPROCS(1)
	g.turns = make(chan struct{}, 2*runtime.NumCPU())
	debug.SetGCPercent(gcPercent)
	dispose(ignore, reserved)
	surviveSignals()            // before the first command can send one
	signal.Ignore(unix.SIGPIPE) // otherwise a write to standard output after the host's end would end this process
	stops, err := catch(stopsOrGoesOn...)
	if err != nil {
		return complain("catch signals", err)
	}
	goesOn := lastSignal{signals: stops}
	go goesOn.watch()
	children, err := catch(unix.SIGCHLD)
	if err != nil {
		return complain("catch signals", err)
	}
	go onChild(children, func() { g.reap() })
	go func() { // while the greeting is on its way
		defer close(g.prepared)
		if g.tasks == nil { // it may count against a limit
			park(spareThreads)
		}
	}()
	first := wire.NewConn(conn, wire.Guest, g.handle)
	g.latest = first
	_ = first.Serve() // the host ends the connection, with or without an error
	ended := g.outlast()
	if survivors := g.end(); survivors > 0 {
		return complain("kill remaining processes", fmt.Errorf("%d could not be killed", survivors))
	}
	pending := takePending(stopsOrGoesOn...)
	if !pending {
		awaitHandlers()
	}
	if pending || ended.Sub(goesOn.time()) < stoppedBefore {
		return wire.WasStopped
	}
	return 0
}

// openNull opens the null device. If programs have made it inaccessible to this process's user, an empty file that nobody can
// write to takes its place, so that files can be reached.
func openNull() (*os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		return null, nil
	}
	fd, ferr := unix.MemfdCreate("null", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if ferr != nil {
		return nil, err
	}
	empty := os.NewFile(uintptr(fd), "null") //nolint:gosec // a descriptor
	if _, ferr := unix.FcntlInt(empty.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); ferr != nil {
		return nil, errors.Join(err, empty.Close())
	}
	return empty, nil
}

// pollable turns standard input and output into a connection whose reads and writes block no thread. If both are the
// same socket, the host can pass file descriptors over it.
func pollable(stdin, stdout, null *os.File) (io.ReadWriteCloser, error) {
	in, out := int(stdin.Fd()), int(stdout.Fd())
	for _, fd := range []int{in, out} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, err
		}
		unix.CloseOnExec(fd)
	}
	same, moved := sameSocket(in, out), -1
	if !same {
		// Go's poller has standard output already if it was non-blocking before, and accepts a descriptor only once.
		var err error
		if moved, err = unix.FcntlInt(uintptr(out), unix.F_DUPFD_CLOEXEC, 0); err != nil { //nolint:gosec // not negative
			return nil, err
		}
	}
	// Otherwise the connection would stay open when it has ended.
	if err := wire.Control(null, func(fd int) error { return unix.Dup3(fd, out, unix.O_CLOEXEC) }); err != nil {
		return nil, err
	}
	if same {
		return wire.NewSocket(in)
	}
	return stdio{os.NewFile(uintptr(in), "stdin"), os.NewFile(uintptr(moved), "stdout")}, nil //nolint:gosec // not negative
}

// sameSocket reports whether two file descriptors are of the same unix socket.
func sameSocket(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Mode&unix.S_IFMT == unix.S_IFSOCK && x.Dev == y.Dev && x.Ino == y.Ino
}

// park makes the runtime start n threads, which it keeps.
func park(n int) {
	var all, go_ sync.WaitGroup
	all.Add(n)
	go_.Add(1)
	for range n {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			go_.Wait()
		}()
	}
	all.Wait()
	go_.Done()
}

// handle serves one request of the host.
func (g *guest) handle(s *wire.Stream, request []byte) {
	req, err := wire.DecodeRequest(request)
	if err != nil {
		s.Close()
		return
	}
	go func() {
		defer s.Close()
		switch {
		case req.Exec != nil:
			g.exec(s, req.Exec)
		case req.File != nil:
			g.file(s, req.File)
		case req.Move != nil:
			g.move(s, req.Move)
		case req.Sweep != nil:
			g.sweep(s, req.Sweep)
		case req.Reside != nil:
			g.reside(s, req.Reside)
		case req.Reserve != nil:
			g.reserve(s, req.Reserve)
		case req.List != nil:
			g.list(s)
		case req.Join != nil:
			g.join(s, req.Join)
		case req.Forget != nil:
			g.forget(s, req.Forget)
		case req.Restart != nil:
			g.restart(s, req.Restart)
		case req.KillAll != nil:
			g.killAll(s)
		case req.Dial != nil:
			g.dial(s, req.Dial)
		case req.Talk != nil:
			g.talk(s, req.Talk)
		}
	}()
}

// end kills everything that this guest started, including workers, and returns how many processes could not be
// killed. It does not depend on the workers: the descendants of a dead worker become children of this process.
func (g *guest) end() (survivors int) {
	g.mu.Lock()
	g.closing = true
	g.mu.Unlock()
	self := os.Getpid()
	return kill(self, func() iter.Seq[int] { return descendants(self) }, g.reap)
}
