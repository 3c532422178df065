package guest

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// maxIdle is how many idle workers are kept for the next commands.
	maxIdle = 4
	// trimAfter is how long idle workers beyond maxIdle are kept, so that many commands at once do not each need a new
	// worker.
	trimAfter = time.Second
	// room is how many more processes and threads must be allowed for a worker to be started ahead. Otherwise it could
	// take those that the guest itself needs.
	room = 32
	// fewProcesses is a limit on the user's processes, of which others may use some, below which no worker is started
	// ahead.
	fewProcesses = 1000
)

// supervisor is a guest's handle of one worker.
type supervisor struct {
	pid    int
	stat   int    // file descriptor of its /proc/PID/stat, while it is in guest.workers
	limits limits // those that it started with: its runtime raises the one on open files
	socket *wire.Socket
	ready  chan struct{} // closed when it can take a command
	notes  chan note     // closed when the worker is gone
	since  atomic.Uint64 // processes that started earlier are not its command's; in ticks since boot
	dead   chan struct{} // closed when its process was reaped
	swept  chan struct{} // closed when the processes that it left were killed too

	survivors int // processes that could not be killed; set before swept is closed

	program bool // its command is the service's own program; guest.mu protects it
}

// worker returns an idle worker, or a new one.
func (g *guest) worker() (*supervisor, error) {
	g.mu.Lock()
	for len(g.idle) > 0 {
		w := g.idle[len(g.idle)-1]
		g.idle = g.idle[:len(g.idle)-1]
		if !g.sound(w) { // a command has tampered with it
			w.retire()
			continue
		}
		g.mu.Unlock()
		return w, nil
	}
	g.mu.Unlock()
	return g.spawn()
}

// sound reports whether an idle worker can take a command. It kills a worker that was stopped, or whose limits were
// changed, since the process that did this may do it again. g.mu is held, so w.pid cannot be reused meanwhile.
func (g *guest) sound(w *supervisor) bool {
	if g.workers[w.pid] != w {
		return false
	}
	switch f := fieldsAt(w.stat); {
	case f == nil || f[0] == "Z" || f[0] == "X" || pendingKill(f):
		return false
	case stopped(f), !slices.Contains([]limits{g.limits, w.limits}, limitsOf(w.pid)):
		_ = unix.Kill(w.pid, unix.SIGKILL)
		return false
	}
	return true
}

// limits are the first ten resource limits of a process, which are those that programs reach. A process of the same
// user may lower a worker's limits with prlimit(2), and the next command would inherit them.
type limits [unix.RLIMIT_AS + 1]unix.Rlimit

// limitsOf makes raw system calls that bypass Go's scheduler. The kernel answers at once, and each command waits for
// this.
func limitsOf(pid int) (l limits) {
	for resource := range l {
		// They are zero for a process that has ended.
		_, _, _ = unix.RawSyscall6(unix.SYS_PRLIMIT64, uintptr(pid), uintptr(resource), 0, uintptr(unsafe.Pointer(&l[resource])), 0, 0)
	}
	return l
}

const (
	// pressFirst and pressLast are the shortest and the longest time between two checks of a worker.
	pressFirst, pressLast = 50 * time.Millisecond, time.Second
	// mostStops is how much more often a worker may be found stopped than running before it is killed.
	mostStops = 8
)

// press keeps a worker running until done is closed. The worker's command can stop it, since both run as the same
// user. press continues it. If it is stopped again and again, press kills it, and its descendants are killed too. Each
// check that finds it running makes up for one that found it stopped: kills of other commands stop it for a moment, see
// standstill, and so a long command may see many stops. longest is the longest time between two checks.
func (g *guest) press(w *supervisor, longest time.Duration, done <-chan struct{}) {
	t := time.NewTimer(0)
	defer t.Stop()
	for pause, stops := pressFirst, 0; ; pause = min(2*pause, longest) {
		select {
		case <-done:
			return
		case <-w.dead:
			return
		case <-t.C:
		}
		g.mu.Lock()
		switch {
		case g.workers[w.pid] != w:
		case !stopped(fieldsAt(w.stat)):
			stops = max(stops-1, 0)
		case stops+1 < mostStops:
			stops++
			_ = unix.Kill(w.pid, unix.SIGCONT)
			pause = pressFirst
		default:
			_ = unix.Kill(w.pid, unix.SIGKILL)
		}
		g.mu.Unlock()
		t.Reset(pause)
	}
}

// now returns the time in ticks since boot, the unit of process start times. It returns 0 if the time is not
// available.
func now() uint64 {
	var ts unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	return uint64(ts.Nano() / int64(tick)) //nolint:gosec // not negative
}

// hasRoom reports whether a worker can be started before a command needs it, so that the first command does not wait
// for its start.
func (g *guest) hasRoom() bool {
	if g.tasks != nil {
		return true
	}
	return g.limits[unix.RLIMIT_NPROC].Cur >= fewProcesses && (g.cgroup.limit == 0 || g.cgroup.limit-g.cgroup.tasks.read() >= room)
}

// processLimit describes the limit on processes and how many there are; the text is empty without a limit. It reports whether
// the limit is reached.
func (g *guest) processLimit() (text string, reached bool) {
	limit, running, own := g.cgroup.limit, g.cgroup.tasks.read(), int64(0)
	if user := g.limits[unix.RLIMIT_NPROC].Cur; limit == 0 && user < fewProcesses { // there is no control group
		limit = int64(user) //nolint:gosec // see above
		all, _ := os.ReadDir("/proc")
		for _, process := range all {
			if pid, err := strconv.Atoi(process.Name()); err == nil {
				running += threads(pid)
			}
		}
	}
	if limit == 0 {
		return "", false
	}
	if g.tasks == nil { // this program counts too
		own = threads(os.Getpid())
		g.mu.Lock()
		for pid := range g.workers {
			own += threads(pid)
		}
		g.mu.Unlock()
	}
	text = fmt.Sprintf("the sandbox's limit of %d processes and threads is reached: its programs have %d", limit, running-own)
	if own > 0 {
		text += fmt.Sprintf(", and what runs them %d", own)
	}
	return text, running >= limit
}

// spawn starts a worker. files are the standard streams of its first command; none if they are sent with it.
func (g *guest) spawn(files ...int) (*supervisor, error) {
	own, peer, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(peer)
	socket, err := wire.NewSocket(own)
	if err != nil {
		return nil, err
	}
	null := g.null.Fd()
	attr := &syscall.ProcAttr{
		Env: []string{"GOMAXPROCS=1"}, Sys: &syscall.SysProcAttr{Setsid: true},
		Files: []uintptr{null, null, null, uintptr(peer)},
	}
	g.mu.Lock() // so that the worker is not reaped before it is in g.workers
	defer g.mu.Unlock()
	args := []string{g.self, "worker", strconv.Itoa(g.slack)}
	if !contained.Load() {
		args = append(args, uncontained)
	}
	for _, fd := range g.tasks {
		attr.Files = append(attr.Files, uintptr(fd)) //nolint:gosec // a descriptor
	}
	if len(g.tasks) > 0 {
		args = append(args, tasksOption+strconv.Itoa(len(g.tasks)))
	}
	for _, fd := range files {
		attr.Files = append(attr.Files, uintptr(fd)) //nolint:gosec // a descriptor
	}
	if len(files) > 0 {
		args = append(args, streamsOption)
	}
	pid, err := untraceable(func() (int, error) { return syscall.ForkExec(g.self, args, attr) })
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("start the process that supervises the command: %w", err)
	}
	stat, err := openStat(pid)
	if err != nil {
		_ = socket.Close() // so that the worker ends
		return nil, err
	}
	w := &supervisor{pid: pid, stat: stat, limits: limitsOf(pid), socket: socket, ready: make(chan struct{}), notes: make(chan note, 16), dead: make(chan struct{}), swept: make(chan struct{})}
	w.since.Store(math.MaxUint64)
	g.workers[pid] = w
	go w.listen()
	return w, nil
}

// listen forwards the worker's notes until the worker is gone.
func (w *supervisor) listen() {
	defer close(w.notes)
	r := bufio.NewReader(w.socket)
	for {
		n, err := readNote(r)
		switch {
		case err != nil:
			return
		case n.Ready:
			close(w.ready)
		default:
			w.notes <- n
		}
	}
}

// readyWithin bounds the start of a command's worker, with all tries. It normally takes a few milliseconds.
const readyWithin = 10 * time.Second

// errNotReady is the error of a worker that does not start, or is gone before it has the command. Its runtime ends it if it
// gets no thread. A process in the sandbox can kill or stop it.
var errNotReady = errors.New("the process that supervises the command does not start")

// await waits until the worker can take a command. From then on it needs no further thread.
func (g *guest) await(w *supervisor, until time.Time) error {
	select {
	case <-w.ready:
		return nil
	default:
	}
	defer time.AfterFunc(pressFirst, func() { g.press(w, pressLast, w.ready) }).Stop()
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-w.ready:
		return nil
	case <-w.dead:
	case <-late.C:
	}
	return errNotReady
}

// release returns a worker without descendants to the pool.
func (g *guest) release(w *supervisor) {
	w.since.Store(math.MaxUint64)
	g.mu.Lock()
	defer g.mu.Unlock()
	w.program = false
	if g.closing {
		w.retire()
		return
	}
	g.idle = append(g.idle, w)
	if len(g.idle) > maxIdle && !g.trimming {
		g.trimming = true
		time.AfterFunc(trimAfter, g.trim)
	}
}

// trim retires the idle workers beyond maxIdle.
func (g *guest) trim() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trimming = false
	if n := len(g.idle) - maxIdle; n > 0 {
		for _, w := range g.idle[:n] {
			w.retire()
		}
		g.idle = slices.Delete(g.idle, 0, n)
	}
}

// retire makes a worker end, and kill its command.
func (w *supervisor) retire() {
	_ = w.socket.Close() // the worker reads EOF
	go func() {
		for range w.notes { // unblocks listen
		}
	}()
}

// awaitSurvivors waits until a dead worker's processes are killed, and returns how many could not be killed.
func (w *supervisor) awaitSurvivors() (survivors int) {
	w.retire() // in case it is still alive
	<-w.swept
	return w.survivors
}

// reap collects the statuses of ended children: workers, and orphans of workers that were killed. It returns whether
// no child is left.
func (g *guest) reap() (none bool) {
	for {
		g.mu.Lock()
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL, nil)
		w := g.workers[pid]
		if w != nil {
			delete(g.workers, pid)
			_ = unix.Close(w.stat)
			close(w.dead)
		}
		closing := g.closing
		g.mu.Unlock()
		switch {
		case errors.Is(err, unix.EINTR):
		case pid <= 0:
			return errors.Is(err, unix.ECHILD)
		case w != nil && !closing:
			w.survivors = g.sweepAfter(w)
			close(w.swept)
		case w != nil:
			close(w.swept)
		}
	}
}

// sweepAfter kills the processes that a killed worker left. These orphans are now children of this process. Other
// orphans may be there too, from commands that the Engine started and that have ended. Those that started before the
// worker's command are not killed.
func (g *guest) sweepAfter(w *supervisor) (survivors int) {
	self := os.Getpid()
	orphans := func() iter.Seq[int] { return g.orphans(self, w.since.Load(), nil) }
	looks := 0
	kill(self, func() iter.Seq[int] { return killable(orphans()) }, func() bool {
		before := unseen.Load()
		left := slices.Collect(killable(orphans()))
		g.mu.Lock()
		for _, pid := range left {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil) // it may be alive, or another process's child
		}
		g.mu.Unlock()
		if looks++; len(left) > 0 || unseen.Load() != before {
			looks = 0
		}
		return looks >= emptyLooks
	})
	return living(orphans()) // including processes that this one may not kill
}

// emptyLooks is how many checks in a row must find nothing. The kernel's lists of children are not atomic snapshots.
const emptyLooks = 5
