package provider

import (
	"log/slog"

	"github.com/fumehood/fumehood"
)

// LogLoosened logs the settings of a spec that weaken the isolation: a network, another seccomp profile, writable
// mounts other than a workspace, no limits.
func LogLoosened(log *slog.Logger, spec fumehood.Spec) {
	if !spec.Network.IsNone() {
		log.Warn("the sandbox has a network", "sandbox", spec.Name, "network", spec.Network.Mode)
	}
	LogSeccomp(log, spec)
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

// LogSeccomp logs a seccomp profile that weakens the isolation.
func LogSeccomp(log *slog.Logger, spec fumehood.Spec) {
	if spec.Seccomp != "" {
		log.Warn("the sandbox has a seccomp profile that allows more than Fumehood's", "sandbox", spec.Name, "seccomp", spec.Seccomp)
	}
}
