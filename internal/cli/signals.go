package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signalled is the cause of a context that a signal ended.
type signalled struct {
	name   string
	number int
}

func (s *signalled) Error() string { return "ended by " + s.name }
func (s *signalled) exitCode() int { return exitSignal + s.number }

// onSignal returns a context that the first signal to end cancels. The second calls quit. A broken pipe
// is left to who writes: it must not end us before we have cleaned up.
func onSignal(ctx context.Context, quit func(code int)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, endingSignals...)
	done := make(chan struct{})
	go func() {
		told := false
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
				s := &signalled{name: sig.String(), number: number}
				if told {
					quit(s.exitCode())
				}
				told = true
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
