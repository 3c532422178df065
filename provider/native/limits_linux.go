//go:build amd64 || arm64

package native

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fumehood/fumehood"
)

// unenforcedLimits returns the limits that the kernel does not enforce without control groups. It returns an ErrUnsupported if
// the spec names one of them, unless the options allow that.
func (p *Provider) unenforcedLimits(spec fumehood.Spec, runtime *ociRuntime) ([]string, error) {
	if !delegates() {
		return nil, nil
	}
	limits, groups := spec.Limits.WithDefaults(), delegatedGroups()
	countsUsers := p.inUserNamespace() && runtime == nil // the kernel limits the processes of each user
	var all, named []string
	for _, l := range []struct {
		name       string
		controller string
		set, asked bool
	}{
		{"memory", "memory", limits.Memory > 0, spec.Limits.Memory > 0},
		{"swap", "memory", limits.Memory > 0, false},
		{"pids", "pids", limits.PIDs > 0 && (p.ids != nil || !rootless() || runtime != nil), spec.Limits.PIDs > 0 && !countsUsers}, // each user may have as many
		{"cpus", "cpu", limits.CPUs > 0, spec.Limits.CPUs > 0},
	} {
		if groups[l.controller] != "" {
			continue
		}
		if l.set {
			all = append(all, l.name)
		}
		if l.asked {
			named = append(named, l.name)
		}
	}
	if len(named) > 0 && !p.opts.AllowUnenforcedLimits {
		return nil, &fumehood.Error{
			Op: "start sandbox", Class: fumehood.ErrUnsupported,
			Err:  fmt.Errorf("limits cannot be enforced without control groups: %s", strings.Join(named, ", ")),
			Hint: groupsHint() + ", or without the limit, or allow it (--allow-unenforced-limits)",
		}
	}
	if len(named) > 0 {
		p.life.LoggerOf(spec).Warn("limits cannot be enforced without control groups, as the run allows", "sandbox", spec.Name, "limits", strings.Join(named, " "))
	}
	if len(all) > 0 {
		p.unlimited.Do(func() {
			message := "processors are not limited"
			if !countsUsers {
				message = "neither processors nor processes are limited"
			}
			p.log.Warn("without control groups, the memory of processes is only measured every "+sparse.String()+", files do not count, and "+message, "limits", strings.Join(all, " "))
		})
	}
	return all, nil
}

// groupsHint is what a user may do to have control groups.
func groupsHint() string {
	switch writable := "run where " + cgroupRoot + " is writable"; {
	case !rootless():
		return writable
	case isRoot():
		return rootHint() + ", and " + writable
	default:
		return rootHint()
	}
}

// noFreezer returns the error for Freeze without control groups.
func noFreezer() error {
	return &fumehood.Error{
		Op: "freeze sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("processes cannot be suspended without control groups"), Hint: groupsHint(),
	}
}
