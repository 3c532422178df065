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

// size resolves how many sandboxes there are at once.
func (t *Task) size(ctx context.Context, how *RunOptions) error {
	least := 1 + t.others() // that an attempt may have
	if n := how.MaxSandboxes; n > 0 && n < least {
		return &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("%d sandbox is there at most, and an attempt has two: its own, and one beside it, of a grader say", n),
			Hint: "let there be 2 sandboxes at least",
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
	how.Ahead = min(how.Ahead, how.MaxSandboxes-least) // one at least makes attempts
	return nil
}

// others is how many sandboxes an attempt may have besides its own: 0, or 1 where any sample has Others. As so many
// fewer attempts are made at once than there is room for, one of them at least can always have its other sandbox: all
// cannot wait for each other.
func (t *Task) others() int {
	if slices.ContainsFunc(t.opts.Samples, func(s Sample) bool { return len(s.Others) > 0 }) {
		return 1
	}
	return 0
}

// largest are the largest limits that any sample's sandbox has. A sandbox without a limit counts as one with the
// default limit of memory, and a core. A Compose project counts as one service.
func (t *Task) largest() fumehood.Limits {
	most := fumehood.Limits{CPUs: 1}
	for i := range t.opts.Samples {
		what := &t.opts.Spec
		if own := t.opts.Samples[i].Spec; own != nil {
			what = own
		}
		for _, each := range append([]fumehood.Spec{*what}, t.opts.Samples[i].Others...) {
			l := each.Limits.WithDefaults()
			if l.Memory == fumehood.NoLimit {
				l.Memory = fumehood.DefaultMemory
			}
			most.Memory, most.CPUs = max(most.Memory, l.Memory), max(most.CPUs, l.CPUs)
		}
	}
	return most
}

// sandboxes is how many of these limits a machine bears. Two for each core: while one is being made or removed, which
// is the daemon's work, another one computes.
func sandboxes(m provider.Machine, each fumehood.Limits) int {
	n := math.MaxInt
	if m.Memory > 0 {
		n = int(m.Memory / 4 * 3 / each.Memory)
	}
	return max(1, min(n, int(2*float64(m.CPUs)/each.CPUs)))
}
