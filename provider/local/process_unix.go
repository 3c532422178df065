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

func killGroup(p *os.Process) { _ = unix.Kill(-p.Pid, unix.SIGKILL) } // gone already is as good

func signalGroup(p *os.Process, linux int) error {
	sig, ok := hostSignal(linux)
	if !ok {
		return classed(fumehood.ErrUnsupported, "there is no signal %d on this system", linux)
	}
	if err := unix.Kill(-p.Pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// linuxSignals are the signals that every unix has, by their numbers on Linux.
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

// runnable reports why a file cannot be executed.
func runnable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s: %w", file, fs.ErrNotExist) // as shells see it
	}
	if err := unix.Access(file, unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func unenterable(dir string) bool { return unix.Access(dir, unix.X_OK) != nil }

// cutOff makes the readers take what is there now, and joins them.
func cutOff(p *process) {
	for _, r := range p.readers {
		_ = r.SetReadDeadline(time.Now()) // a pipe or a terminal: it has deadlines
	}
	<-p.drained
}

// maxPipe bounds what the ended program itself can have left in a pipe: /proc/sys/fs/pipe-max-size is
// 1 MiB, unless root raised it. All beyond comes from others.
const maxPipe = 1 << 20

// takeRest takes what is in a pipe now, without waiting for more.
func takeRest(r *os.File, buf []byte, emit func([]byte)) {
	_ = r.SetReadDeadline(time.Time{}) // which a raw read would obey too
	raw, err := r.SyscallConn()
	if err != nil {
		return
	}
	for taken := 0; taken < maxPipe; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buf) // not blocking: EAGAIN is as good as the end
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		emit(buf[:n])
		taken += n
	}
}
