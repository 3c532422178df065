//go:build unix

package reaper

import (
	"os"
	"os/signal"
	"syscall"
)

// detached puts the reaper into a session of its own, where the signals of its owner's terminal do not reach it.
var detached = &syscall.SysProcAttr{Setsid: true}

// detach makes a reaper live on when all processes are told to end: it ends when its work is done. It also takes the name by
// which people find it, where the system lets it.
func detach() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0) // Linux alone has it
}
