//go:build unix && (!linux || (!amd64 && !arm64))

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(p *os.Process) { _ = unix.Kill(-p.Pid, unix.SIGKILL) } // an error means that it has already ended

func signalGroup(p *os.Process, linux int) error {
	sig, ok := hostSignal(linux)
	if !ok {
		return classError(fumehood.ErrUnsupported, "there is no signal %d on this system", linux)
	}
	if err := unix.Kill(-p.Pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// linuxSignals maps Linux's signal numbers to the signals that every unix has.
var linuxSignals = map[int]syscall.Signal{
	1: unix.SIGHUP, 2: unix.SIGINT, 3: unix.SIGQUIT, 4: unix.SIGILL, 5: unix.SIGTRAP, 6: unix.SIGABRT, 7: unix.SIGBUS,
	8: unix.SIGFPE, 9: unix.SIGKILL, 10: unix.SIGUSR1, 11: unix.SIGSEGV, 12: unix.SIGUSR2, 13: unix.SIGPIPE,
	14: unix.SIGALRM, 15: unix.SIGTERM, 17: unix.SIGCHLD, 18: unix.SIGCONT, 19: unix.SIGSTOP, 20: unix.SIGTSTP,
	21: unix.SIGTTIN, 22: unix.SIGTTOU, 23: unix.SIGURG, 24: unix.SIGXCPU, 25: unix.SIGXFSZ, 26: unix.SIGVTALRM,
	27: unix.SIGPROF, 28: unix.SIGWINCH, 29: unix.SIGIO, 31: unix.SIGSYS,
}

func hostSignal(linux int) (syscall.Signal, bool) {
	if runtime.GOOS == "linux" {
		return syscall.Signal(linux), linux > 0 && linux <= 64
	}
	sig, ok := linuxSignals[linux]
	return sig, ok
}

func linuxSignal(sig syscall.Signal) int {
	if runtime.GOOS != "linux" {
		for number, s := range linuxSignals {
			if s == sig {
				return number
			}
		}
	}
	return int(sig)
}

func exitOf(state *os.ProcessState) provider.Exit {
	ws, ok := state.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		sig := linuxSignal(ws.Signal())
		return provider.Exit{Outcome: fumehood.Signaled, Code: 128 + sig, Signal: sig}
	}
	return provider.Exit{Outcome: fumehood.Exited, Code: state.ExitCode()}
}

// runnable returns an error if a file cannot be executed.
func runnable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s: %w", file, fs.ErrNotExist) // as in shells
	}
	if err := unix.Access(file, unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func unenterable(dir string) bool { return unix.Access(dir, unix.X_OK) != nil }

// cutOff makes the readers take the available output, and waits for them.
func cutOff(p *process) {
	for _, r := range p.readers {
		_ = r.SetReadDeadline(time.Now()) // a pipe or a terminal, which both have deadlines
	}
	<-p.drained
}

// maxPipe bounds the output that an ended program can have left in a pipe. /proc/sys/fs/pipe-max-size is 1 MiB,
// unless root raised it. Anything beyond was written by other processes.
const maxPipe = 1 << 20

// takeRest reads the available output of a pipe, without waiting for more.
func takeRest(r *os.File, buf []byte, emit func([]byte)) {
	_ = r.SetReadDeadline(time.Time{}) // a raw read also observes the deadline
	raw, err := r.SyscallConn()
	if err != nil {
		return
	}
	for taken := 0; taken < maxPipe; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buf) // non-blocking: EAGAIN is treated as the end
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		emit(buf[:n])
		taken += n
	}
}
