package engine

import (
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/sys/capability"
)

// LacksCapabilities reports whether a command was not started because the daemon itself lacks capabilities.
func LacksCapabilities(err error) bool {
	return err != nil && strings.Contains(err.Error(), "unable to apply caps") // runc's message
}

// bounding returns the capabilities that a container's processes may have, a bit for each, from the container's
// configuration. Fumehood drops all capabilities and adds single ones. The Engine's defaults for containers that do
// not drop all are not included.
func bounding(host *container.HostConfig) (set uint64) {
	names := func(list []string) []string {
		upper := make([]string, len(list))
		for i, name := range list {
			upper[i] = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
		}
		return upper
	}
	added, dropped := names(host.CapAdd), names(host.CapDrop)
	for _, c := range capability.ListKnown() {
		name := strings.ToUpper(c.String())
		switch {
		case host.Privileged:
		case slices.Contains(added, "ALL"):
			if slices.Contains(dropped, name) {
				continue
			}
		case !slices.Contains(added, name):
			continue
		}
		set |= 1 << c
	}
	return set
}
