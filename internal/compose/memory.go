package compose

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/docker/go-units"

	"github.com/fumehood/fumehood"
)

// memoryLimit returns a service's memory limit in bytes, or 0 if it has none.
func memoryLimit(svc *types.ServiceConfig) types.UnitBytes {
	if svc.Deploy != nil && svc.Deploy.Resources.Limits != nil {
		return max(svc.MemLimit, svc.Deploy.Resources.Limits.MemoryBytes)
	}
	return svc.MemLimit
}

// boundShared bounds memory that stays in use after the process that filled it has ended, since it then counts against no
// limit. A tmpfs volume is bounded by the sum of the memory limits of the services that mount it. Shared memory, which
// a service may lend, is bounded by the service's limit. The services could not fill more at one time.
func (a *applying) boundShared() {
	users := map[string]types.UnitBytes{} // by volume: sum of their limits, or negative if one has no limit
	for _, name := range a.order {
		svc := a.project.Services[name]
		limit := memoryLimit(&svc)
		if limit > 0 && svc.ShmSize > limit {
			a.change(&svc, "shm_size", fmt.Sprint(int64(svc.ShmSize)), fmt.Sprint(int64(limit)), "shared memory counts as the service's memory")
			svc.ShmSize = limit
			a.project.Services[name] = svc
		}
		for _, v := range svc.Volumes {
			if v.Type == types.VolumeTypeVolume && limit > 0 && users[v.Source] >= 0 {
				users[v.Source] += limit * types.UnitBytes(svc.GetScale())
			} else {
				users[v.Source] = -1
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(users)) {
		v, ok := a.project.Volumes[key]
		if !ok || v.DriverOpts["type"] != "tmpfs" || users[key] <= 0 {
			continue
		}
		if was := v.DriverOpts["o"]; tmpfsSize(was) > users[key] {
			v.DriverOpts = maps.Clone(v.DriverOpts)
			v.DriverOpts["o"] = strings.TrimPrefix(fmt.Sprintf("%s,size=%d", was, users[key]), ",")
			a.change(nil, "volumes."+key+".driver_opts.o", was, v.DriverOpts["o"], "its size is limited to the memory of the services that mount it")
			a.project.Volumes[key] = v
		}
	}
}

// maxPage is the size of Linux's largest memory page on any machine, in bytes. nr_blocks counts pages.
const maxPage = 64 << 10

// tmpfsSize returns the maximum size in bytes of a tmpfs with these options. It returns MaxInt64 if there is no limit
// or one that depends on the machine. Of several limits the kernel uses the last.
func tmpfsSize(options string) types.UnitBytes {
	const endless = math.MaxInt64
	size := types.UnitBytes(endless)
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		unit := map[string]int64{"size": 1, "nr_blocks": maxPage}[name]
		if unit == 0 {
			continue
		}
		n, err := units.RAMInBytes(value)
		if size = types.UnitBytes(n * unit); err != nil || n <= 0 || n > endless/unit {
			size = endless
		}
	}
	return size
}

// boundTmpfs returns t with a size of at most limit bytes: more could not be filled, and the content counts towards a
// memory limit that is not enforced by a control group. A limit of 0 or less has no effect.
func boundTmpfs(t fumehood.Tmpfs, limit int64) fumehood.Tmpfs {
	if limit > 0 && int64(tmpfsSize(strings.Join(t.Options, ","))) > limit {
		t.Options = append(slices.Clip(t.Options), fmt.Sprintf("size=%d", limit))
	}
	return t
}
