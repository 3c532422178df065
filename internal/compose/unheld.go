package compose

import (
	"maps"
	"slices"

	"github.com/compose-spec/compose-go/v2/types"
)

// Unheld says which limits the daemon does not hold, which is allowed. A limit of each process's data stands in for that of
// memory. Nothing does for that of processes: the kernel's own counts all that a user has, in other sandboxes too.
type Unheld struct{ Memory, CPUs bool }

// leastData is the least limit of a process's data in bytes with which a container's runtime starts: runc 1.1 fails with
// 64 MiB.
const leastData = 128 << 20

// Limited says which limits services of the project have.
func (p *Project) Limited() (memory, pids, cpus bool) {
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

// Boundless lists the services that may take all of a machine's memory, given in bytes, swap included, though they have a limit.
func (p *Project) Boundless(memory int64) (services []string) {
	for name, svc := range p.project.Services {
		if int64(max(memoryLimit(&svc), svc.MemSwapLimit)) >= memory {
			services = append(services, name)
		}
	}
	slices.Sort(services)
	return services
}

// standIn gives a service, whose limits are set, the limits that replace those that the daemon does not enforce. It removes
// what the daemon would refuse.
func (u Unheld) standIn(svc *types.ServiceConfig) {
	memory := memoryLimit(svc)
	if u.Memory && memory > 0 {
		limits := types.UlimitsConfig{Single: int(max(memory, leastData))} // what a process writes to, since Linux 4.7
		if own := svc.Ulimits["data"]; own != nil {
			if n := max(own.Single, own.Hard); n > 0 && n < limits.Single && own.Soft >= 0 {
				limits = *own // it is lower; -1 is none
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
