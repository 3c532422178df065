package provider

import (
	"log/slog"

	"github.com/fumehood/fumehood"
)

// LogLoosened logs the settings of a spec that weaken the isolation: a network, writable mounts other than a
// workspace, no limits.
func LogLoosened(log *slog.Logger, spec fumehood.Spec) {
	if !spec.Network.IsNone() {
		log.Warn("the sandbox has a network", "sandbox", spec.Name, "network", spec.Network.Mode)
	}
	for _, m := range spec.Mounts {
		if m.Writable && !m.Workspace {
			log.Warn("the sandbox can write to the host", "sandbox", spec.Name, "path", m.Host)
		}
	}
	for limit, lifted := range map[string]bool{"memory": spec.Limits.Memory == fumehood.NoLimit, "pids": spec.Limits.PIDs == fumehood.NoLimit} {
		if lifted {
			log.Warn("the sandbox has no limit", "sandbox", spec.Name, "limit", limit)
		}
	}
}
