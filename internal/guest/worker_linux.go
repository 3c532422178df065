package guest

import (
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// A worker is a process that owns one command. It starts the command, is the subreaper of all its descendants,
// reports how it ended, and kills all of them when ordered to. It has no other children, so a kill cannot hit
// anything else. When no descendant is left, the worker is kept for the next command. Otherwise it stays as their
// owner. When its guest ends, the worker kills what it owns and exits.

// workerSocket is the file descriptor of a worker's connection to its guest.
const workerSocket = 3

// task is a message from a guest to a worker. Exactly one field is set.
type task struct {
	Start  *start // sent with three file descriptors
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
}

// ended is how the command's own process ended.
type ended struct {
	Status   uint32 // as returned by wait4
	UserUS   int64
	SystemUS int64
	MaxRSS   int64 // bytes
}

type worker struct {
	program string // the path of this program
	slack   int    // timer slack of the command's threads, see relax
	self    int
	tell    func(note)
	quit    func() // ends the worker, as the end of its guest does

	begun chan struct{} // receives a value when a command was started and there are children to wait for

	mu     sync.Mutex
	main   int         // the command's process; 0 when there is none to wait for
	busy   bool        // a command was started, and Idle was not sent since
	unsaid *time.Timer // sends Started when it fires; nil when that was sent or is no longer needed
}

// work runs a worker and returns its exit code. slack is the timer slack of the commands' threads in nanoseconds, or
// 0.
func work(program, slack string) int {
	unix.CloseOnExec(workerSocket)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // otherwise the command could trace it; it can still kill it
	if err := unix.SetNonblock(workerSocket, true); err != nil {
		return 1
	}
	socket, err := wire.NewSocket(workerSocket)
	if err != nil {
		return 1
	}
	var emu sync.Mutex
	usual, _ := strconv.Atoi(slack) // written by the guest, so always a number
	w := &worker{program: program, slack: usual, self: os.Getpid(), begun: make(chan struct{}, 1), tell: func(n note) {
		emu.Lock()
		defer emu.Unlock()
		_ = sendNote(socket, n) // if the guest is gone, the next read fails
	}}
	w.quit = func() { _ = socket.Close() }             // makes the next read fail
	dispose(byDefault, append(reserved, unix.SIGCHLD)) // the runtime's handler would wake a thread at each command's end
	surviveSignals()
	park(spareWorkerThreads)
	go w.follow()
	for {
		t, files, err := receive(socket)
		if err != nil {
			w.kill(0)
			return 0
		}
		w.do(t, files)
	}
}

// follow reaps children as they end, and never returns. It waits in the kernel, which is faster than Go's signals.
func (w *worker) follow() {
	for range w.begun {
		for {
			// WNOWAIT leaves the child unreaped, since a kill reaps at the same time.
			err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
			if errors.Is(err, unix.ECHILD) || w.reap() {
				break // every descendant has ended, since their orphans would be children
			}
		}
	}
}

func (w *worker) do(t task, files []int) {
	switch {
	case t.Start != nil && len(files) == 3:
		if failed := w.start(t.Start, files); failed != nil {
			w.tell(note{Failed: failed})
		}
	case t.Signal != 0:
		w.mu.Lock()
		if w.main > 0 {
			_ = unix.Kill(-w.main, unix.Signal(t.Signal)) // the process group; it may have just ended
		}
		w.mu.Unlock()
	case t.Kill != nil:
		grace := time.Duration(*t.Kill) * time.Millisecond
		go func() {
			survivors := w.kill(grace)
			w.tell(note{Killed: &survivors})
		}()
	}
	for _, fd := range files {
		_ = unix.Close(fd)
	}
}

// start starts the command.
func (w *worker) start(s *start, files []int) *wire.Failed {
	dir := string(s.Dir)
	if err := os.Chdir(dir); err != nil {
		return &wire.Failed{What: wire.NoDir, Text: reason("chdir to "+dir, err)}
	}
	defer func() { _ = os.Chdir("/") }() // so that no mount is kept busy
	args, env := words(s.Args), words(s.Env)
	program, err := lookUp(args[0], env)
	if err != nil {
		what := wire.NoProgram
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			what = wire.NoExecutable
		}
		return &wire.Failed{What: what, Text: reason(args[0], err)}
	}
	attr := &syscall.ProcAttr{Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, fd := range files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if s.Terminal {
		attr.Sys.Setctty, attr.Sys.Ctty = true, 0
	}
	if w.slack > 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		setSlack(w.slack)
	}
	w.mu.Lock() // so that nothing is reaped before its pid is known
	defer w.mu.Unlock()
	var pid int
	if s.Rlimits == nil {
		if pid, err = syscall.ForkExec(program, args, attr); err != nil {
			return startFailure(program, err)
		}
	} else {
		var failed *wire.Failed
		l := launch{Program: []byte(program), Args: s.Args, Env: s.Env, Rlimits: *s.Rlimits}
		if pid, failed = l.start(w.program, attr); failed != nil {
			return failed
		}
	}
	w.main, w.busy = pid, true
	if s.Terse {
		w.unsaid = time.AfterFunc(wire.SaidWithin, func() { w.say(pid) })
	} else {
		w.tell(note{Started: true})
	}
	select {
	case w.begun <- struct{}{}:
	default: // follow is about to wait anyway
	}
	return nil
}

// say reports that the command with this pid has started, unless it has ended or that was reported.
func (w *worker) say(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.main == pid && w.unsaid != nil {
		w.unsaid = nil
		w.tell(note{Started: true})
	}
}

func startFailure(program string, err error) *wire.Failed {
	f := &wire.Failed{What: wire.NoStart, Text: reason(program, err)}
	switch {
	case errors.Is(err, unix.ENOENT): // lookUp found the file, so its interpreter is missing
		f.What, f.Text = wire.NoExecutable, program+": interpreter not found"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOTDIR),
		errors.Is(err, unix.ELIBBAD), errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EINVAL):
		f.What = wire.NoExecutable
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		f.What = wire.NoResources
	}
	return f
}

// reason formats an error with the kernel's text only, without the text that Go adds to it.
func reason(what string, err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return what + ": " + errno.Error()
	}
	return what + ": " + err.Error()
}

// lookUp finds a program as shells do. A name with a slash is taken as it is. Any other name is searched in the PATH
// of env. A file in a directory without search permission counts as not found.
func lookUp(name string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		_, err := runnable(name)
		return name, err
	}
	var found error = unix.ENOENT
	for dir := range strings.SplitSeq(pathOf(env), ":") {
		if dir == "" {
			dir = "."
		}
		there, err := runnable(dir + "/" + name)
		if err == nil {
			return dir + "/" + name, nil
		}
		if there {
			found = err
		}
	}
	return "", found
}

// pathOf returns the PATH of env, or the default of execvp if env has none.
func pathOf(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return v
		}
	}
	return "/bin:/usr/bin"
}

// runnable checks whether this process may execute the file at path. there reports whether the file could be
// examined.
func runnable(path string) (there bool, err error) {
	var info unix.Stat_t
	for err = unix.EINTR; errors.Is(err, unix.EINTR); { // os.Stat would take twice as long for each folder of the PATH
		err = unix.Stat(path, &info)
	}
	if err != nil {
		return false, err
	}
	if info.Mode&unix.S_IFMT == unix.S_IFDIR {
		return true, unix.EISDIR
	}
	return true, unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

func words(bs [][]byte) []string {
	s := make([]string, len(bs))
	for i, b := range bs {
		s[i] = string(b)
	}
	return s
}

// reap collects the statuses of ended children. It reports the end of the command's process and of the last
// descendant to the guest, and returns whether no child is left.
func (w *worker) reap() (none bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var news note
	defer func() {
		if news != (note{}) {
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
			if w.unsaid != nil {
				w.unsaid.Stop()
				w.unsaid = nil
			}
			news.Ended = &ended{
				Status: uint32(status), UserUS: usage.Utime.Nano() / 1000, SystemUS: usage.Stime.Nano() / 1000,
				MaxRSS: usage.Maxrss << 10,
			}
		}
	}
}

// kill kills the command and all its descendants. If something prevents the worker from seeing them, it ends itself
// instead. They become children of the guest, which then kills them.
func (w *worker) kill(grace time.Duration) (survivors int) {
	before := unseen.Load()
	if grace > 0 {
		terminate(w.self, grace, w.reap)
	}
	blind := false
	survivors = kill(w.self, func() iter.Seq[int] { return descendants(w.self) }, func() bool {
		none := w.reap()
		blind = !none && unseen.Load() != before
		return none || blind
	})
	if blind {
		w.quit()
	}
	return survivors
}

// receive reads one task and the file descriptors sent with it.
func receive(socket *wire.Socket) (t task, files []int, err error) {
	var head [4]byte
	files, err = readWithFiles(socket, head[:])
	if err != nil {
		return t, files, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(socket, body); err != nil {
		return t, files, err
	}
	return t, files, wire.Unpack(body, &t)
}
