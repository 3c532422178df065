package guest

import (
	"errors"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// A worker is a process that owns one command. It starts the command, is the subreaper of all its descendants,
// reports how it ended, and kills all of them when ordered to. It has no other children, so a kill cannot hit
// anything else. When no descendant is left, the worker is kept for the next command. Otherwise it stays as their
// owner. When its guest ends, the worker kills what it owns and exits.

// Options of a worker. It gets files after its socket: with tasksOption those of control groups, see setup.Run, by their number,
// and with streamsOption the standard streams of its first command.
const (
	tasksOption   = "--tasks="
	streamsOption = "--streams"
)

// workerSocket is the file descriptor of a worker's connection to its guest.
const workerSocket = 3

// task is a message from a guest to a worker. Exactly one field is set.
type task struct {
	Start  *start // sent with three file descriptors, unless the worker has them
	Signal int
	Kill   *int64 // the grace in milliseconds
}

type start struct {
	Args     [][]byte
	Env      [][]byte
	Dir      []byte
	Terminal bool

	Rlimits *wire.Rlimits

	// Terse delays the report of the start until the command has ended, or for wire.SaidWithin.
	Terse bool
}

// note is a message from a worker to its guest. Exactly one field is set, except that Idle may come with Ended. For a
// terse command that has ended, Started may not have been sent.
type note struct {
	Started bool
	Failed  *wire.Failed
	Ended   *ended
	Killed  *int // how many processes survived
	Idle    bool // no descendant is left
	Ready   bool // the first note: it can take a command

	// With Ended and Killed: the CPU time of the command and of all its descendants that have ended, in microseconds.
	UserUS, SystemUS int64
}

// ended is how the command's own process ended.
type ended struct {
	Status uint32 // as returned by wait4
	MaxRSS int64  // bytes
}

// A worker does everything in its first thread. The runtime has started two more before that, or rarely three: one that monitors,
// and one that takes over while the first waits. It needs no others. Go's runtime aborts when it gets no thread, and a worker may
// count against the sandbox's limit on processes. So it gets no command before it has reported that it is ready.
type worker struct {
	program string // the path of this program
	slack   int    // timer slack of the command's threads, see relax
	self    int
	tasks   []int // see setup.Run
	list    int   // the folder of this process's threads; only with tasks
	streams []int // of the next command, if they do not come with it

	before unix.Rusage // of ended descendants when the command was started
	main   int         // the command's process; 0 when there is none to wait for
	pidfd  int         // of the command's process; -1 when there is none, the kernel has none, or it no longer helps
	ended  bool        // the last poll found that the command's process has ended
	busy   bool        // a command was started, and Idle was not sent since
	say    time.Time   // when to send Started; zero when that was sent or is no longer needed
	gone   bool        // the guest has ended, or the worker ends for another reason
}

// Worker runs a worker, if the arguments of this program are those of one. It returns the exit code. Package main calls it while
// it is initialized: until then the runtime keeps the main goroutine in the first thread.
func Worker(args []string) (code int, is bool) {
	if len(args) < 3 || args[1] != "worker" {
		return 0, false
	}
	contained.Store(!slices.Contains(args[3:], uncontained))
	tasks := 0
	for _, arg := range args[3:] {
		if n, has := strings.CutPrefix(arg, tasksOption); has {
			tasks, _ = strconv.Atoi(n) // written by the guest, so always a number
		}
	}
	return work(args[0], args[2], tasks, slices.Contains(args[3:], streamsOption)), true
}

// work runs a worker and returns its exit code. slack is the timer slack of the commands' threads in nanoseconds, or
// 0. tasks is the number of files, after the socket, for w.tasks. streams says that those for w.streams follow.
func work(program, slack string, tasks int, streams bool) int {
	unix.CloseOnExec(workerSocket)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // otherwise the command could trace it; it can still kill it
	usual, _ := strconv.Atoi(slack)                  // written by the guest, so always a number
	w := &worker{program: program, slack: usual, self: os.Getpid(), pidfd: -1}
	for i := range tasks {
		unix.CloseOnExec(workerSocket + 1 + i)
		w.tasks = append(w.tasks, workerSocket+1+i)
	}
	for i := range 3 {
		if fd := workerSocket + 1 + tasks + i; streams {
			unix.CloseOnExec(fd)
			w.streams = append(w.streams, fd)
		}
	}
	if len(w.tasks) > 0 {
		var err error
		if w.list, err = unix.Open(threadsFolder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return 1
		}
	}
	dispose(byDefault, reserved)
	surviveSignals()
	if w.slack > 0 {
		setSlack(w.slack)
	}
	w.tell(note{Ready: true})
	for !w.gone {
		w.wait()
	}
	w.kill(0)
	return 0
}

// tell sends a note. If the guest is gone, the next wait finds out.
func (w *worker) tell(n note) { _ = sendNote(notes{}, n) }

// notes is a worker's connection to its guest, which always reads.
type notes struct{}

func (notes) Write(p []byte) (sent int, err error) {
	for sent < len(p) {
		n, err := wire.RawSend(workerSocket, p[sent:], nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return sent, err
		}
		sent += max(n, 0)
	}
	return sent, nil
}

const (
	// lookAgain bounds how long a worker waits for the end of an orphan. The kernel interrupts the wait by SIGCHLD, but not if
	// that comes just before it.
	lookAgain = time.Second
	// lookSoon is that time for the command's process without a pidfd.
	lookSoon = 5 * time.Millisecond
)

// wait waits for the guest's next task or the end of a process, and handles it.
func (w *worker) wait() {
	until := time.Duration(-1)
	switch {
	case w.main > 0 && w.pidfd < 0:
		until = lookSoon
	case w.busy:
		until = lookAgain
	}
	if !w.say.IsZero() {
		until = min(until, max(time.Until(w.say), 0))
	}
	ready := w.poll(until)
	if w.busy {
		w.reap()
		if w.ended { // and not reaped: another process that traces it has to look first, so poll would return at once
			w.closePidfd()
		}
	}
	if !w.say.IsZero() && !time.Now().Before(w.say) {
		w.say = time.Time{}
		w.tell(note{Started: true})
	}
	if ready {
		w.take()
	}
}

// stayFor is how long a worker waits without giving the runtime's other thread a turn. Most commands end within it. So that
// thread is not woken for each of them. If it were, and had not come to rest by the next wait, the runtime would start yet
// another one. The runtime interrupts such a wait after 10 ms.
const stayFor = 4 * time.Millisecond

// poll waits at most as long for a task or the end of the command's process, without a limit if that is negative. It reports
// whether there is a task.
func (w *worker) poll(within time.Duration) (ready bool) {
	fds := [2]unix.PollFd{{Fd: workerSocket, Events: unix.POLLIN}, {Fd: int32(w.pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor; a negative one is ignored
	stay := stayFor
	if within >= 0 {
		stay = min(stay, within)
	}
	n, errno := rawPoll(&fds, stay)
	err := error(nil)
	if errno != 0 {
		err = errno
	}
	if n == 0 && within != stay {
		ms := -1
		if within >= 0 {
			ms = int((within - stay + time.Millisecond - 1) / time.Millisecond)
		}
		_, err = unix.Poll(fds[:], ms)
	}
	w.ended = false
	if err != nil {
		w.gone = w.gone || !errors.Is(err, unix.EINTR) // the command has lowered the limit on descriptors
		return false
	}
	w.ended = fds[1].Revents != 0
	return fds[0].Revents != 0
}

// rawPoll is poll(2) as a call that the runtime does not know of.
func rawPoll(fds *[2]unix.PollFd, within time.Duration) (n int, errno unix.Errno) {
	until := unix.NsecToTimespec(int64(within))
	r, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(fds)), uintptr(len(fds)), uintptr(unsafe.Pointer(&until)), 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(r), 0 //nolint:gosec // at most len(fds)
}

// take reads a task and does it.
func (w *worker) take() {
	t, files, err := receive()
	if err != nil {
		w.gone = true
		return
	}
	w.do(t, files)
}

// look reaps while the worker kills, and handles what has come from the guest meanwhile.
func (w *worker) look() (none bool) {
	if !w.gone && w.poll(0) {
		w.take()
	}
	return w.reap()
}

func (w *worker) do(t task, files []int) {
	if t.Start != nil && len(files) == 0 {
		files, w.streams = w.streams, nil
	}
	switch {
	case t.Start != nil && len(files) == 3:
		if failed := w.start(t.Start, files); failed != nil {
			w.tell(note{Failed: failed})
		}
	case t.Signal != 0:
		if w.main > 0 {
			_ = unix.Kill(-w.main, unix.Signal(t.Signal)) // the process group; it may have just ended
		}
	case t.Kill != nil:
		n := note{Killed: new(w.kill(time.Duration(*t.Kill) * time.Millisecond))}
		n.UserUS, n.SystemUS = w.cpuTime()
		w.tell(n)
	}
	for _, fd := range files {
		_ = unix.Close(fd)
	}
}

// start starts the command.
func (w *worker) start(s *start, files []int) *wire.Failed {
	dir, err := enterable(string(s.Dir))
	if err != nil {
		return &wire.Failed{What: wire.NoDir, Text: reason("chdir to "+string(s.Dir), err)}
	}
	args, env := words(s.Args), words(s.Env)
	program, err := lookUp(dir, args[0], env)
	if err != nil {
		kind := wire.NoProgram
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			kind = wire.NoExecutable
		}
		return &wire.Failed{What: kind, Text: reason(args[0], err)}
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, fd := range files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if s.Terminal {
		attr.Sys.Setctty, attr.Sys.Ctty = true, 0
	}
	w.pidfd = -1
	attr.Sys.PidFD = &w.pidfd
	threads := w.threads()
	defer func() {
		if w.moveBack(threads) != nil {
			w.gone = true // it would count as a process of the command
		}
	}()
	if err := w.move(toCode); err != nil {
		return &wire.Failed{What: wire.NoResources, Text: reason("enter the control group", err)}
	}
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &w.before)
	var pid int
	if s.Rlimits == nil {
		if pid, err = forkExec(program, args, attr); err != nil {
			return startFailure(program, err)
		}
	} else {
		var failed *wire.Failed
		l := launch{Program: []byte(program), Args: s.Args, Env: s.Env, Rlimits: *s.Rlimits}
		if pid, failed = l.start(w.program, attr); failed != nil {
			w.closePidfd()
			return failed
		}
	}
	w.main, w.busy = pid, true
	if s.Terse {
		w.say = time.Now().Add(wire.SaidWithin)
	} else {
		w.tell(note{Started: true})
	}
	return nil
}

// forkExec is syscall.ForkExec. It asks for no pidfd where the kernel has none: Linux before 5.2, and emulators.
func forkExec(program string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	pid, err = syscall.ForkExec(program, args, attr)
	if errors.Is(err, unix.EINVAL) && attr.Sys.PidFD != nil {
		attr.Sys.PidFD = nil
		pid, err = syscall.ForkExec(program, args, attr)
	}
	return pid, err
}

// closePidfd closes the pidfd of a process that has ended.
func (w *worker) closePidfd() {
	if w.pidfd >= 0 {
		wire.RawClose(w.pidfd)
		w.pidfd = -1
	}
}

// reap collects the statuses of ended children. It reports the end of the command's process and of the last
// descendant to the guest, and returns whether no child is left.
func (w *worker) reap() (none bool) {
	var news note
	defer func() {
		if news != (note{}) {
			if news.Ended != nil {
				news.UserUS, news.SystemUS = w.cpuTime()
			}
			w.tell(news)
		}
	}()
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			if w.busy && w.main == 0 {
				w.busy = false
				news.Idle = true
			}
			return true
		case pid == 0:
			return false
		case !status.Exited() && !status.Signaled():
			// It has asked to be traced and has stopped. Its descendants may signal it, and it is killed like any
			// other.
		case pid == w.main:
			w.main = 0
			w.closePidfd()
			w.say = time.Time{}
			news.Ended = &ended{Status: uint32(status), MaxRSS: usage.Maxrss << 10}
		}
	}
}

// cpuTime returns the CPU time of the command's processes that have ended, in microseconds. Orphans become children of
// this process, so it has reaped all of them, except those whose parent ignores SIGCHLD.
func (w *worker) cpuTime() (user, system int64) {
	var now unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &now) != nil {
		return 0, 0
	}
	since := func(before, now unix.Timeval) int64 { return max(now.Nano()-before.Nano(), 0) / 1000 }
	return since(w.before.Utime, now.Utime), since(w.before.Stime, now.Stime)
}

// kill kills the command and all its descendants. If something prevents the worker from seeing them, it ends itself
// instead. They become children of the guest, which then kills them.
func (w *worker) kill(grace time.Duration) (survivors int) {
	before := unseen.Load()
	if grace > 0 {
		terminate(w.self, grace, w.look)
	}
	blind := false
	survivors = kill(w.self, func() iter.Seq[int] { return descendants(w.self) }, func() bool {
		none := w.look()
		blind = !none && unseen.Load() != before
		return none || blind
	})
	if blind {
		w.gone = true
	}
	return survivors
}
