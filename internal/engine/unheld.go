package engine

import (
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
)

// harmless are what warnings of a creation begin with that are about no limit.
var harmless = []string{
	"The requested image's platform",   // which runs by emulation, or fails
	"Published ports are discarded",    // with the host's network
	"Localhost DNS setting",            // of the user's own
	"Specifying a kernel memory limit", // which is none of ours
	"IPv4 forwarding is disabled",      // the network reaches less
}

// unheld are the warnings of a creation that say, or may say, that something is not held that was asked for.
func unheld(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool {
		return slices.ContainsFunc(harmless, func(begin string) bool { return strings.HasPrefix(w, begin) })
	})
}

// dropped are warnings of a creation whose answer was lost: an Engine that does not hold a limit does not keep it either.
func dropped(asked, kept *container.HostConfig) (warnings []string) {
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
