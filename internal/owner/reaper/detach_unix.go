//go:build unix

package reaper

import (
	"os"
	"os/signal"
	"syscall"
)

// detached starts the reaper in its own session, where the signals of its owner's terminal do not reach it.
var detached = &syscall.SysProcAttr{Setsid: true}

// detach makes a reaper ignore signals that ask it to end, because it ends when its work is done. It also sets the
// process name that people see, if the system supports that.
func detach() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0) // Linux only
}
