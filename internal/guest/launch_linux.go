package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// launch is a program that is to run with limits. A worker cannot set them between fork and exec, nor on
// itself: it could not lift them again. So it starts the guest once more, which sets them on itself and
// becomes the program.
type launch struct {
	Program []byte       `json:"program"`
	Args    [][]byte     `json:"args"`
	Env     [][]byte     `json:"env"`
	Rlimits wire.Rlimits `json:"rlimits"`
}

const (
	// launchSocket is the descriptor on which a launched guest finds its worker.
	launchSocket = 3
	// launchWithin bounds the time until the program runs, which takes a few milliseconds: a process of
	// the same user may have stopped the launched guest.
	launchWithin = 10 * time.Second
)

// start starts the program by the guest at path self, with the descriptors and the session of attr. It
// returns when the program runs; where it does not, nothing of it is left. No child may be reaped
// meanwhile.
func (l *launch) start(self string, attr *syscall.ProcAttr) (pid int, failed *wire.Failed) {
	if l.Rlimits.Processes > 0 && os.Getuid() == 0 {
		return 0, &wire.Failed{What: wire.NoRlimit, Text: "the kernel does not hold root to a limit of processes"}
	}
	none := func(err error) (int, *wire.Failed) {
		return 0, &wire.Failed{What: wire.NoResources, Text: reason("set the command's limits", err)}
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return none(err)
	}
	socket := os.NewFile(uintptr(ours), "launch")
	defer socket.Close()
	// The program's own environment could upset the Go runtime of this one.
	attr.Env = []string{"GOMAXPROCS=1", "GOGC=off"}
	attr.Files = append(attr.Files, uintptr(theirs))
	pid, err = syscall.ForkExec(self, []string{self, "launch"}, attr)
	_ = unix.Close(theirs)
	if err != nil {
		return none(err)
	}
	failed, err = l.follow(socket)
	if err == nil && failed == nil {
		return pid, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no answer within %v; has another process of the user stopped it?", launchWithin)
	}
	if err != nil {
		failed = &wire.Failed{What: wire.Hindered, Text: reason("set the command's limits", err)}
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return 0, failed
}

// follow hands the launch over and takes what becomes of it: the limits are set, and then either the
// socket ends with the exec, or that has failed.
func (l *launch) follow(socket *os.File) (*wire.Failed, error) {
	if err := socket.SetDeadline(time.Now().Add(launchWithin)); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(socket).Encode(l); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(socket)
	for limited := false; ; limited = true {
		var n note
		err := dec.Decode(&n)
		switch {
		case limited && errors.Is(err, io.EOF):
			return nil, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("the launched guest was killed")
		case err != nil:
			return nil, err
		case n.Failed != nil:
			return n.Failed, nil
		}
	}
}

// launched is the life of a launched guest until it becomes the program.
func launched() int {
	unix.CloseOnExec(launchSocket)
	park(spareWorkerThreads)
	socket := os.NewFile(launchSocket, "worker")
	answer := json.NewEncoder(socket)
	var l launch
	if json.NewDecoder(socket).Decode(&l) != nil {
		return 1
	}
	program, args, env := string(l.Program), words(l.Args), words(l.Env)
	failed := restrict(l.Rlimits)
	if failed == nil && answer.Encode(note{Started: true}) == nil {
		failed = startFailure(program, syscall.Exec(program, args, env))
	}
	_ = answer.Encode(note{Failed: failed}) // a worker that is gone is not interested
	return 1
}

// restrict sets limits on this process. That of processes comes last, since no thread may be had after it.
func restrict(l wire.Rlimits) *wire.Failed {
	for _, r := range []struct {
		name       string
		resource   int
		soft, hard int64
	}{
		{"processor time", unix.RLIMIT_CPU, l.CPU, l.CPU + 1},
		{"file size", unix.RLIMIT_FSIZE, l.FileSize, l.FileSize},
		{"open files", unix.RLIMIT_NOFILE, l.OpenFiles, l.OpenFiles},
		{"processes", unix.RLIMIT_NPROC, l.Processes, l.Processes},
	} {
		if r.soft <= 0 {
			continue
		}
		if err := lower(r.resource, uint64(r.soft), uint64(r.hard)); err != nil {
			return &wire.Failed{What: wire.NoStart, Text: reason(fmt.Sprintf("limit its %s to %d", r.name, r.soft), err)}
		}
	}
	return nil
}

// lower sets a limit, or the hard one that is there where that is lower.
func lower(resource int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	// Package syscall's own, so that its Exec does not set back the limit of open files.
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: min(soft, now.Max), Max: min(hard, now.Max)})
}
