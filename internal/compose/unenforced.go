package compose

import (
	"maps"
	"slices"

	"github.com/compose-spec/compose-go/v2/types"
)

// Unheld lists the limits that the daemon does not enforce, which the user has allowed. A limit of each process's data
// replaces the memory limit. Nothing replaces the limit of processes, since the kernel's own limit counts all processes
// of a user, including those in other sandboxes.
type Unheld struct{ Memory, CPUs bool }

// leastData is the smallest data limit of a process, in bytes, with which a container runtime starts. runc 1.1 fails
// with 64 MiB.
const leastData = 128 << 20

// HasLimits reports which limits services of the project have.
func (p *Project) HasLimits() (memory, pids, cpus bool) {
	for _, svc := range p.project.Services {
		memory, pids, cpus = memory || svc.MemLimit > 0, pids || svc.PidsLimit > 0, cpus || svc.CPUS > 0
		if svc.Deploy != nil && svc.Deploy.Resources.Limits != nil {
			l := svc.Deploy.Resources.Limits
			memory, pids, cpus = memory || l.MemoryBytes > 0, pids || l.Pids > 0, cpus || l.NanoCPUs > 0
		}
		cpus = cpus || svc.CPUQuota > 0
	}
	return memory, pids, cpus
}

// Boundless returns the sorted names of services whose memory limit, including swap, is at least memory, that of the
// machine in bytes.
func (p *Project) Boundless(memory int64) (services []string) {
	for name, svc := range p.project.Services {
		if int64(max(memoryLimit(&svc), svc.MemSwapLimit)) >= memory {
			services = append(services, name)
		}
	}
	slices.Sort(services)
	return services
}

// standIn replaces limits that the daemon does not enforce, and removes those that it would reject. The service's
// limits must be set before.
func (u Unheld) standIn(svc *types.ServiceConfig) {
	memory := memoryLimit(svc)
	if u.Memory && memory > 0 {
		// Since Linux 4.7, this limits the writable private memory of a process.
		limits := types.UlimitsConfig{Single: int(max(memory, leastData))}
		if own := svc.Ulimits["data"]; own != nil {
			if n := max(own.Single, own.Hard); n > 0 && n < limits.Single && own.Soft >= 0 {
				limits = *own // it is lower; -1 means no limit
			}
		}
		svc.Ulimits = maps.Clone(svc.Ulimits)
		if svc.Ulimits == nil {
			svc.Ulimits = map[string]*types.UlimitsConfig{}
		}
		svc.Ulimits["data"] = &limits
	}
	if u.CPUs {
		svc.CPUS, svc.CPUQuota = 0, 0
		if svc.Deploy != nil && svc.Deploy.Resources.Limits != nil {
			svc.Deploy.Resources.Limits.NanoCPUs = 0
		}
	}
}
