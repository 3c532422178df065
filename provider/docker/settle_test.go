package docker

import (
	"context"
	"testing"
)

// A sandbox whose start has ended is removed, even if its turn comes after the timeout.
func TestSandbox_settle(t *testing.T) {
	sb := &sandbox{p: &Provider{}, giveUp: func(error) {}, settled: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sb.settle(ctx) == nil {
		t.Error("start counts as ended although it is in progress")
	}
	close(sb.settled)
	for range 100 {
		if err := sb.settle(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
