package docker

import (
	"github.com/fumehood/fumehood/internal/box"

	"github.com/fumehood/fumehood"
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

// logLoosened logs the requested settings that weaken the isolation.
func (p *Provider) logLoosened(spec fumehood.Spec) {
	log := p.life.LoggerOf(spec)
	provider.LogLoosened(log, spec)
	for _, m := range spec.Mounts {
		if why := hostpath.Unsafe(m.Host, m.Writable); why != "" {
			log.Warn(box.BrokenIsolation, "sandbox", spec.Name, "path", m.Host, "reason", why)
		}
	}
}
