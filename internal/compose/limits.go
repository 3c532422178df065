package compose

import (
	"fmt"
	"strconv"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

// sizes rejects negative sizes, limits below the minimum, and numbers of CPUs that no machine has. A number too large for an integer becomes
// negative, and would count as no limit. The swap limit may be -1.
func (c *checking) sizes(svc *types.ServiceConfig) {
	check := func(size types.UnitBytes, keys ...string) {
		if size < 0 {
			c.refuse(of(svc, keys...), "%d bytes is not a valid size", size)
		}
	}
	checkMemory := func(size types.UnitBytes, keys ...string) {
		if check(size, keys...); size > 0 && size < fumehood.MinMemory {
			c.refuse(of(svc, keys...), "%d bytes is below the minimum of %d (6 MiB)", size, fumehood.MinMemory)
		}
	}
	checkPIDs := func(n int64, keys ...string) {
		if n > 0 && n < fumehood.MinPIDs {
			c.refuse(of(svc, keys...), "%d is below the minimum of %d: the guest's own threads count too", n, fumehood.MinPIDs)
		}
	}
	checkCPUs := func(n float32, keys ...string) {
		if !(n >= 0 && n <= fumehood.MaxCPUs) { // true for NaN
			c.refuse(of(svc, keys...), "%v is not a number of CPUs from 0 to %d", n, fumehood.MaxCPUs)
		}
	}
	checkCPUs(svc.CPUS, "cpus")
	checkMemory(svc.MemLimit, "mem_limit")
	checkPIDs(svc.PidsLimit, "pids_limit")
	check(svc.MemReservation, "mem_reservation")
	if svc.MemSwapLimit != -1 {
		check(svc.MemSwapLimit, "memswap_limit")
	}
	check(svc.ShmSize, "shm_size")
	if svc.Build != nil {
		check(svc.Build.ShmSize, "build", "shm_size")
	}
	if d := svc.Deploy; d != nil {
		if r := d.Resources.Limits; r != nil {
			checkMemory(r.MemoryBytes, "deploy", "resources", "limits", "memory")
			checkPIDs(r.Pids, "deploy", "resources", "limits", "pids")
			checkCPUs(float32(r.NanoCPUs), "deploy", "resources", "limits", "cpus")
		}
		if r := d.Resources.Reservations; r != nil {
			check(r.MemoryBytes, "deploy", "resources", "reservations", "memory")
		}
	}
	for i, v := range svc.Volumes {
		if v.Tmpfs != nil {
			check(v.Tmpfs.Size, "volumes", fmt.Sprint(i), "tmpfs", "size")
		}
	}
}

// limits lowers a service's limits to the requested ones, and sets those that are neither requested nor in the files to
// the defaults. Compose requires those in deploy to be equal.
func (a *applying) limits(svc *types.ServiceConfig) {
	deployed := &types.Resource{}
	if d := svc.Deploy; d != nil && d.Resources.Limits != nil {
		deployed = d.Resources.Limits
	}
	a.memory(svc, deployed)
	a.pids(svc, deployed)
	a.cpus(svc, deployed)
}

const requested = "the requested limit"

func (a *applying) memory(svc *types.ServiceConfig, deployed *types.Resource) {
	reserved := []*types.UnitBytes{&svc.MemReservation}
	if d := svc.Deploy; d != nil && d.Resources.Reservations != nil {
		reserved = append(reserved, &d.Resources.Reservations.MemoryBytes)
	}
	own := max(svc.MemLimit, deployed.MemoryBytes)
	limit, why := own, requested
	most := types.UnitBytes(a.pol.Limits.Memory)
	switch {
	case most > 0 && (own == 0 || own > most):
		limit = most
	case most == 0 && own == 0:
		limit, why = fumehood.DefaultMemory, "no service may take all memory"
		for _, r := range reserved {
			limit = max(limit, *r)
		}
	}
	if limit != own {
		svc.MemLimit, deployed.MemoryBytes = limit, limit
		a.change(svc, "mem_limit", limitText(int64(own)), limitText(int64(limit)), why)
	}
	for _, r := range reserved {
		if most > 0 && *r > limit {
			a.change(svc, "mem_reservation", limitText(int64(*r)), limitText(int64(limit)), why)
			*r = limit
		}
	}
	switch swap := svc.MemSwapLimit; {
	case limit == 0:
	case swap == 0, most > 0 && (swap < 0 || swap > most):
		svc.MemSwapLimit = limit
		a.change(svc, "memswap_limit", limitText(int64(swap)), limitText(int64(limit)), "the memory limit includes swap")
	}
}

func (a *applying) pids(svc *types.ServiceConfig, deployed *types.Resource) {
	own := svc.PidsLimit
	if deployed.Pids != 0 {
		own = deployed.Pids
	}
	limit, why := own, requested
	switch most := a.pol.Limits.PIDs; {
	case most > 0 && (own <= 0 || own > most):
		limit = most
	case most == 0 && own == 0:
		limit, why = fumehood.DefaultPIDs, "no service may take all processes"
	}
	if limit != own {
		svc.PidsLimit, deployed.Pids = limit, limit
		a.change(svc, "pids_limit", limitText(own), limitText(limit), why)
	}
}

// cfsPeriod is the default of cpu_period in microseconds, in Linux and in the Engine.
const cfsPeriod = 100_000

func (a *applying) cpus(svc *types.ServiceConfig, deployed *types.Resource) {
	own := float64(svc.CPUS)
	if deployed.NanoCPUs != 0 {
		own = float64(deployed.NanoCPUs)
	}
	if own == 0 && svc.CPUQuota > 0 {
		period := svc.CPUPeriod
		if period <= 0 {
			period = cfsPeriod
		}
		own = float64(svc.CPUQuota) / float64(period)
	}
	most := a.pol.Limits.CPUs
	if most <= 0 || own > 0 && float32(own) <= float32(most) { // Compose has them in 32 bits
		return
	}
	svc.CPUQuota, svc.CPUPeriod = 0, 0 // the Engine takes either these or a number of CPUs
	svc.CPUS, deployed.NanoCPUs = float32(most), types.NanoCPUs(most)
	from := ""
	if own > 0 {
		from = fmt.Sprint(float32(own))
	}
	a.change(svc, "cpus", from, fmt.Sprint(float32(most)), requested)
}

// limitText formats a limit, as an empty text if there is none.
func limitText(limit int64) string {
	if limit == 0 {
		return ""
	}
	return strconv.FormatInt(limit, 10)
}
