package guest

import (
	"bufio"
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

// launch is a program to be started with resource limits. A worker cannot set them between fork and exec. It cannot
// set them on itself either, since it could not raise them again. So it starts the guest program once more, which
// sets the limits on itself and then execs the program.
type launch struct {
	Program []byte       `json:"program"`
	Args    [][]byte     `json:"args"`
	Env     [][]byte     `json:"env"`
	Rlimits wire.Rlimits `json:"rlimits"`
}

const (
	// launchSocket is the file descriptor of a launched guest's connection to its worker.
	launchSocket = 3
	// launchWithin bounds the time until the program runs. Normally that takes a few milliseconds, but a process of
	// the same user may have stopped the launched guest.
	launchWithin = 10 * time.Second
)

// start starts the program through the guest program at path self, with the file descriptors and the session of attr.
// It returns when the program runs. On failure it leaves no process behind. The caller must not reap children
// meanwhile.
func (l *launch) start(self string, attr *syscall.ProcAttr) (pid int, failed *wire.Failed) {
	if l.Rlimits.Processes > 0 && os.Getuid() == 0 {
		return 0, &wire.Failed{What: wire.NoRlimit, Text: "the kernel does not apply a process limit to root"}
	}
	none := func(err error) (int, *wire.Failed) {
		return 0, &wire.Failed{What: kindOf(err), Text: reason("set the command's limits", err)}
	}
	own, peer, err := socketPair()
	if err != nil {
		return none(err)
	}
	socket := os.NewFile(uintptr(own), "launch")
	defer socket.Close()
	// The program's own environment could affect this Go runtime.
	attr.Env = []string{"GOMAXPROCS=1", "GOGC=off"}
	attr.Files = append(attr.Files, uintptr(peer))
	pid, err = forkExec(self, []string{self, "launch"}, attr)
	_ = unix.Close(peer)
	if err != nil {
		return none(err)
	}
	failed, err = l.follow(socket)
	if err == nil && failed == nil {
		return pid, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: another process of the user may have stopped it", launchWithin)
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

// follow sends the launch and waits for its outcome. The limits are set first. Then the exec either closes the socket
// or fails.
func (l *launch) follow(socket *os.File) (*wire.Failed, error) {
	if err := socket.SetDeadline(time.Now().Add(launchWithin)); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(socket).Encode(l); err != nil {
		return nil, err
	}
	r := bufio.NewReader(socket)
	for limited := false; ; limited = true {
		n, err := readNote(r)
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

// runLaunched runs a launched guest until it becomes the program. It returns an exit code only on failure.
func runLaunched() int {
	unix.CloseOnExec(launchSocket)
	park(spareWorkerThreads)
	socket := os.NewFile(launchSocket, "worker")
	var l launch
	if json.NewDecoder(socket).Decode(&l) != nil {
		return 1
	}
	program, args, env := string(l.Program), words(l.Args), words(l.Env)
	failed := restrict(l.Rlimits)
	if failed == nil && sendNote(socket, note{Started: true}) == nil {
		failed = startFailure(program, syscall.Exec(program, args, env))
	}
	_ = sendNote(socket, note{Failed: failed}) // the worker may be gone
	return 1
}

// restrict sets limits on this process. The limit on processes comes last, since no thread can be started after it.
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

// lower sets a resource's soft and hard limit, each to at most the current hard limit.
func lower(resource int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	// Package syscall's Setrlimit keeps its Exec from restoring the limit on open files.
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: min(soft, now.Max), Max: min(hard, now.Max)})
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

// kindOf returns the kind of an error of this program's own start. Programs of the sandbox may have changed the permissions or
// the names of the directories above it, whenever that was.
func kindOf(err error) string {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return wire.Hindered
	}
	return wire.NoResources
}

// reason formats an error with the kernel's text only, without the text that Go adds to it.
func reason(action string, err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return action + ": " + errno.Error()
	}
	return action + ": " + err.Error()
}

func words(bs [][]byte) []string {
	s := make([]string, len(bs))
	for i, b := range bs {
		s[i] = string(b)
	}
	return s
}
