package workers

import (
	"context"
	"fmt"
	"strings"

	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// Diagnose asks each worker for its status, and reports a check for each. It returns false if no worker can take a sandbox.
func Diagnose(ctx context.Context, opts Options, report func(provider.Check)) bool {
	p, err := New(opts)
	if err != nil {
		report(provider.FailedCheck("configuration", err))
		return false
	}
	defer func() { _ = p.Close(ctx) }() // it has opened no lease
	all, err := p.ready(ctx)
	if err != nil {
		report(provider.FailedCheck("workers", err))
		return false
	}
	usable := false
	for _, w := range all {
		c := candidate{worker: w}
		c.Status, err = w.status(ctx, "")
		if err == nil && c.Draining {
			err = c.full()
		}
		if err != nil {
			failed := provider.FailedCheck("worker", err)
			failed.Detail = w.name + ": " + strings.TrimPrefix(failed.Detail, "worker "+w.name+": ")
			report(failed)
			continue
		}
		usable = true
		report(provider.Check{Name: "worker", Status: provider.StatusOK, Detail: fmt.Sprintf(
			"%s: Fumehood %s, provider %s, %d of %d sandboxes, %d CPUs, %s", w.name, c.Version.Version, c.Provider, c.Sandboxes, c.MaxSandboxes, c.CPUs, memoryOf(c.Status))})
	}
	return usable
}

// memoryOf describes the memory of a worker.
func memoryOf(st api.Status) string {
	if st.MemoryAvailable == 0 {
		return fmt.Sprintf("%.1f GiB of memory", float64(st.Memory)/(1<<30))
	}
	return fmt.Sprintf("%.1f GiB of memory available", float64(st.MemoryAvailable)/(1<<30))
}
