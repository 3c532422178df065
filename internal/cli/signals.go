package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signaled is the cause of a context that a signal canceled.
type signaled struct {
	name   string
	number int
}

func (s *signaled) Error() string { return "ended by " + s.name }
func (s *signaled) exitCode() int { return exitSignal + s.number }

// onSignal returns a context that the first terminating signal cancels. The second signal calls quit with its exit
// code. SIGPIPE is caught and ignored, because it must not kill us before cleanup; the failed write reports it.
func onSignal(ctx context.Context, quit func(code int)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, endingSignals...)
	done := make(chan struct{})
	go func() {
		logged := false
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				if sig == brokenPipe {
					continue
				}
				number := 0
				if n, ok := sig.(syscall.Signal); ok {
					number = int(n)
				}
				s := &signaled{name: sig.String(), number: number}
				if logged {
					quit(s.exitCode())
				}
				logged = true
				cancel(s)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
