package guest

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// guest serves one host.
type guest struct {
	self   string // the path of this program
	slack  int    // of the commands' threads; see relax
	null   *os.File
	cgroup cgroup
	limits limits // that it was started with, and its workers are

	mu      sync.Mutex
	workers map[int]*supervisor // by pid: all that live
	idle    []*supervisor
	closing bool
	// trimming says that trim is about to run.
	trimming bool
	resident bool             // see reside
	detached map[int]*command // by number: those that were not forgotten
	reserved map[int]reservation
	last     int // the highest number of a detached command so far
}

const (
	// spareThreads are started before there is a limit to hit: a Go program that needs a thread when
	// the processes have run out is aborted.
	spareThreads       = 8
	spareWorkerThreads = 2
	// gcPercent is GOGC: what the guest holds is taken from the container's memory.
	gcPercent = 50
	// stoppedBefore is how long before it has seen the end of its connection a guest went on that had been stopped at that end.
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

// serve speaks with the host until the connection ends, then kills all that it started, unless it resides.
func serve(self string, stdin, stdout, stderr *os.File) int {
	complain := func(what string, err error) int {
		_, _ = io.WriteString(stderr, "fumehood-guest: "+what+": "+err.Error()+"\n")
		return 1
	}
	// Before anything else: a non-dumpable process cannot do some of this.
	g := &guest{self: self, slack: relax(self), workers: map[int]*supervisor{}, detached: map[int]*command{}, reserved: map[int]reservation{}, cgroup: noCgroup, limits: limitsOf(os.Getpid())}
	if contained.Load() {
		g.cgroup = openCgroup(cgroupRoot)
	}
	var err error
	if g.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return complain("open the null device", err)
	}
	conn, err := pollable(stdin, stdout)
	if err != nil {
		return complain("prepare standard input and output", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return complain("become a subreaper", err)
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // else what it runs could trace it
	runtime.GOMAXPROCS(1)                            // its work is short and in turns: to wake another thread costs more than it saves
	debug.SetGCPercent(gcPercent)
	handleReserved(ignore)
	signals := takeSignals(unix.SIGCHLD) // before the first command can send one
	goesOn, since := make(chan os.Signal, 1), make(chan time.Time, 1)
	signal.Notify(goesOn, stopsOrGoesOn...)
	go func() {
		var last time.Time
		for range goesOn {
			last = time.Now()
		}
		since <- last
	}()
	park(spareThreads)
	go onChild(signals, func() { g.reap() })
	_ = wire.NewConn(conn, wire.Guest, g.handle).Serve() // its end is the host's, however it came
	ended := time.Now()
	if g.resides() {
		select {}
	}
	if survivors := g.end(); survivors > 0 {
		return complain("end what it started", fmt.Errorf("%d of its processes could not be killed", survivors))
	}
	pending := isPending(stopsOrGoesOn...)
	signal.Stop(goesOn) // it waits until what has come is in the channel
	close(goesOn)
	if pending || ended.Sub(<-since) < stoppedBefore {
		return wire.WasStopped
	}
	return 0
}

// pollable makes standard input and output files that block no thread.
func pollable(stdin, stdout *os.File) (stdio, error) {
	in, out := int(stdin.Fd()), int(stdout.Fd())
	for _, fd := range []int{in, out} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return stdio{}, err
		}
		unix.CloseOnExec(fd)
	}
	return stdio{os.NewFile(uintptr(in), "stdin"), os.NewFile(uintptr(out), "stdout")}, nil
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

// handle takes a request of the host.
func (g *guest) handle(s *wire.Stream, request []byte) {
	var req wire.Request
	if err := json.Unmarshal(request, &req); err != nil {
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
		case req.Dial != nil:
			g.dial(s, req.Dial)
		case req.Talk != nil:
			g.talk(s, req.Talk)
		}
	}()
}

// end kills all that this guest started, workers included, and returns how many processes could not be
// killed. It needs no worker's help: what a dead one leaves becomes a child of this process.
func (g *guest) end() (survivors int) {
	g.mu.Lock()
	g.closing = true
	g.mu.Unlock()
	self := os.Getpid()
	return kill(self, func() iter.Seq[int] { return descendants(self) }, g.reap)
}
