package engine

import (
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
)

// harmless are prefixes of creation warnings that don't concern a limit.
var harmless = []string{
	"The requested image's platform",   // it runs by emulation, or fails
	"Published ports are discarded",    // with the host's network
	"Localhost DNS setting",            // the user's own setting
	"Specifying a kernel memory limit", // not set by Fumehood
	"IPv4 forwarding is disabled",      // the network reaches less
}

// limitWarnings returns the creation warnings that mean, or may mean, that a requested limit is not enforced.
func limitWarnings(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool {
		return slices.ContainsFunc(harmless, func(begin string) bool { return strings.HasPrefix(w, begin) })
	})
}

// droppedWarnings returns warnings for a creation whose answer was lost. An Engine that does not enforce a limit does not
// store it either.
func droppedWarnings(asked, kept *container.HostConfig) (warnings []string) {
	if asked == nil || kept == nil {
		return nil
	}
	limit := func(pids *int64) int64 {
		if pids == nil {
			return 0
		}
		return *pids
	}
	for _, l := range []struct {
		name        string
		asked, kept int64
	}{
		{"memory", asked.Memory, kept.Memory}, {"swap", asked.MemorySwap, kept.MemorySwap}, {"processes", limit(asked.PidsLimit), limit(kept.PidsLimit)}, {"CPU", asked.NanoCPUs, kept.NanoCPUs},
	} {
		if l.asked > 0 && l.kept != l.asked {
			warnings = append(warnings, "The limit of "+l.name+" was discarded.")
		}
	}
	return warnings
}
