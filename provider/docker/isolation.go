package docker

import (
	"cmp"
	"log/slog"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/seccomp"
	"github.com/fumehood/fumehood/provider"
)

// loadProfiles returns the seccomp profile of the options, and those that a spec can choose, by name.
func loadProfiles(opts Options) (own string, others map[string]string, err error) {
	if own, err = seccomp.Load(opts.Seccomp); err != nil {
		return "", nil, err
	}
	browsers, err := seccomp.Load(fumehood.SeccompBrowsers)
	return own, map[string]string{fumehood.SeccompBrowsers: browsers}, err
}

// logSeccomp logs, once, that containers do not use Fumehood's own seccomp profile.
func (p *Provider) logSeccomp() {
	p.seccompLogged.Do(func() {
		switch p.opts.Seccomp {
		case "":
		case seccomp.Unconfined:
			p.opts.Logger.Warn("unsafe, allowed: the sandboxes' system calls are not filtered", "seccomp", p.opts.Seccomp)
		default:
			p.opts.Logger.Warn("the sandboxes have another seccomp profile than Fumehood's, which may allow more", "seccomp", p.opts.Seccomp)
		}
	})
}

// brokenIsolation is the log message for unsafe settings that the user allows.
const brokenIsolation = "the isolation is broken, as the run allows"

// loggerOf returns the logger for settings that weaken a sandbox's isolation.
func (p *Provider) loggerOf(spec fumehood.Spec) *slog.Logger {
	return cmp.Or(spec.Logger, p.opts.Logger)
}

// logLoosened logs the requested settings that weaken the isolation.
func (p *Provider) logLoosened(spec fumehood.Spec) {
	log := p.loggerOf(spec)
	provider.LogLoosened(log, spec)
	for _, m := range spec.Mounts {
		if why := hostpath.Unsafe(m.Host, m.Writable); why != "" {
			log.Warn(brokenIsolation, "sandbox", spec.Name, "path", m.Host, "reason", why)
		}
	}
}

// logFiles logs the warnings about a project's files, and the variables that they use although they are not set, each
// place once for all sandboxes of the provider.
func (p *Provider) logFiles(spec fumehood.Spec, project *compose.Project) {
	for _, w := range project.Warnings() {
		if _, logged := p.filesLogged.LoadOrStore([2]string{w.Key, w.At}, true); !logged {
			p.loggerOf(spec).Warn(w.Reason, "key", w.Key, "at", w.At)
		}
	}
	for _, u := range project.Unset() {
		if _, logged := p.filesLogged.LoadOrStore([2]string{u.Name, u.At}, true); !logged {
			p.loggerOf(spec).Warn("a variable is not set, and so empty in the Compose file; "+compose.OnlyNamed, "variable", u.Name, "at", u.At)
		}
	}
}
