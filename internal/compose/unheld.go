package compose

import (
	"maps"

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

// standIn gives a service, whose limits are set, the limits that stand in for those that are not held; what the daemon would refuse is left out.
func (u Unheld) standIn(svc *types.ServiceConfig) {
	if _, own := svc.Ulimits["data"]; u.Memory && svc.MemLimit > 0 && !own {
		svc.Ulimits = maps.Clone(svc.Ulimits)
		if svc.Ulimits == nil {
			svc.Ulimits = map[string]*types.UlimitsConfig{}
		}
		svc.Ulimits["data"] = &types.UlimitsConfig{Single: int(max(svc.MemLimit, leastData))} // what a process writes to, since Linux 4.7
	}
	if u.CPUs {
		svc.CPUS, svc.CPUQuota = 0, 0
		if svc.Deploy != nil && svc.Deploy.Resources.Limits != nil {
			svc.Deploy.Resources.Limits.NanoCPUs = 0
		}
	}
}
