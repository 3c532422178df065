//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// onResize calls f whenever the terminal's size changes, until stop is called.
func onResize(f func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-signals:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}
