package task

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// size resolves MaxSandboxes, MaxStarting and Ahead.
func (t *Task) size(ctx context.Context, how *RunOptions) error {
	least := 1 + t.others() // sandboxes that one attempt may need
	if n := how.MaxSandboxes; n > 0 && n < least {
		return &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("the limit is %d sandbox, but an attempt needs two: its own and a second one, such as a grader's", n),
			Hint: "allow at least 2 sandboxes",
		}
	}
	if how.MaxSandboxes == 0 {
		machine := provider.Machine{CPUs: runtime.GOMAXPROCS(0)}
		if m, ok := t.opts.Provider.(provider.Measurer); ok {
			var err error
			if machine, err = m.Machine(ctx); err != nil {
				return err
			}
		}
		how.MaxSandboxes = max(least, sandboxes(machine, t.largest()))
	}
	if how.MaxStarting == 0 {
		how.MaxStarting = max(2, runtime.GOMAXPROCS(0))
	}
	switch {
	case how.Ahead < 0 || t.opts.Keep:
		how.Ahead = 0
	case how.Ahead == 0:
		how.Ahead = how.MaxSandboxes / 4
	}
	how.Ahead = min(how.Ahead, how.MaxSandboxes-least) // leave enough for at least one attempt
	return nil
}

// others returns how many sandboxes an attempt may have in addition to its own: 1 if any sample has Others, else 0.
// The number of concurrent attempts is smaller by that number than the number of slots. So at least one attempt can
// always start its second sandbox, and attempts cannot deadlock.
func (t *Task) others() int {
	if slices.ContainsFunc(t.opts.Samples, func(s Sample) bool { return len(s.Others) > 0 }) {
		return 1
	}
	return 0
}

// largest returns the largest limits of any sample's sandbox. A sandbox without limits counts with the default
// memory limit and one core. A Compose project counts as one service.
func (t *Task) largest() fumehood.Limits {
	most := fumehood.Limits{CPUs: 1}
	for i := range t.opts.Samples {
		spec := &t.opts.Spec
		if own := t.opts.Samples[i].Spec; own != nil {
			spec = own
		}
		for _, each := range append([]fumehood.Spec{*spec}, t.opts.Samples[i].Others...) {
			l := each.Limits.WithDefaults()
			if l.Memory == fumehood.NoLimit {
				l.Memory = fumehood.DefaultMemory
			}
			most.Memory, most.CPUs = max(most.Memory, l.Memory), max(most.CPUs, l.CPUs)
		}
	}
	return most
}

// sandboxes returns how many sandboxes with these limits a machine can run. It allows two for each core: while the
// daemon creates or removes one, the other computes.
func sandboxes(m provider.Machine, each fumehood.Limits) int {
	n := math.MaxInt
	if m.Memory > 0 {
		n = int(m.Memory / 4 * 3 / each.Memory)
	}
	return max(1, min(n, int(2*float64(m.CPUs)/each.CPUs)))
}
