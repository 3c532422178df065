package docker

import (
	"errors"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
)

// unenforcedLimits returns and records the limits that the daemon does not enforce, if the options allow that.
func (sb *sandbox) unenforcedLimits(holds engine.Holds) compose.Unheld {
	if !sb.p.opts.AllowUnenforcedLimits {
		return compose.Unheld{}
	}
	sb.About.Unenforced = unenforcedNames(holds, true, true, true)
	if sb.Spec.Limits.Disk > 0 {
		sb.About.Unenforced = append(sb.About.Unenforced, "disk")
	}
	if len(sb.About.Unenforced) > 0 {
		sb.p.life.LoggerOf(sb.Spec).Warn("the daemon cannot enforce limits, as the run allows", "sandbox", sb.Spec.Name, "limits", strings.Join(sb.About.Unenforced, " "))
	}
	return compose.Unheld{Memory: !holds.Memory, CPUs: !holds.CPUs}
}

// checkDisk rejects a disk limit, which no common storage driver enforces, unless the options allow that.
func (p *Provider) checkDisk(spec fumehood.Spec) error {
	if spec.Limits.Disk > 0 && !p.opts.AllowUnenforcedLimits {
		return &fumehood.Error{
			Op: "start sandbox " + spec.Name, Class: fumehood.ErrUnsupported, Err: errors.New("the docker provider cannot limit the disk"),
			Hint: "use the native provider, or set no disk limit",
		}
	}
	return nil
}

// checkLimits rejects a project with limits that the daemon does not enforce, unless the options allow that.
func (sb *sandbox) checkLimits(holds engine.Holds) error {
	if sb.p.opts.AllowUnenforcedLimits {
		return nil
	}
	memory, pids, cpus := sb.project.HasLimits()
	if names := unenforcedNames(holds, memory, pids, cpus); len(names) > 0 {
		return refuseUnheld("the daemon cannot enforce limits: " + strings.Join(names, ", "))
	}
	return nil
}

func refuseUnheld(why string) error {
	return &fumehood.Error{Op: "create container", Class: fumehood.ErrUnsupported, Err: errors.New(why), Hint: engine.UnheldHint}
}

// unenforcedNames returns the names of the limits that are set and not enforced.
func unenforcedNames(holds engine.Holds, memory, pids, cpus bool) (names []string) {
	for _, l := range []struct {
		name        string
		asked, held bool
	}{{"memory", memory, holds.Memory}, {"swap", memory, holds.Swap}, {"pids", pids, holds.PIDs}, {"cpus", cpus, holds.CPUs}} {
		if l.asked && !l.held {
			names = append(names, l.name)
		}
	}
	return names
}

// checkEnforced handles the daemon's warnings that it does not enforce settings of a container. It returns an error, or logs
// them if the options allow that.
func (o Options) checkEnforced(labels map[string]string, warnings []string) error {
	if !o.AllowUnenforcedLimits {
		return refuseUnheld("the daemon does not enforce all settings: " + strings.Join(warnings, " "))
	}
	o.Logger.Warn("the daemon does not enforce all settings, as the run allows", "sandbox", labels[owner.LabelSandbox], "daemon", strings.Join(warnings, " "))
	return nil
}
