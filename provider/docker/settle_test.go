package docker

import (
	"context"
	"testing"
)

// A sandbox whose start is over is removed, however late its turn comes.
func TestAStartThatIsOverIsNotAwaited(t *testing.T) {
	sb := &sandbox{p: &Provider{}, giveUp: func(error) {}, settled: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sb.settle(ctx) == nil {
		t.Error("its start is under way, and passes for over")
	}
	close(sb.settled)
	for range 100 {
		if err := sb.settle(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
