package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// Info describes the machine of an Engine, as the Engine reports it.
type Info struct {
	CgroupVersion string // "1" or "2"
	Kernel        string
	Driver        string            // the storage driver: "overlay2"
	DriverStatus  map[string]string // what the storage driver reports: "Backing Filesystem" ...
	Security      []string          // "seccomp", "apparmor", "userns", "rootless" ..., without their options
	Runtimes      []string          // names, the default first
	// RuntimePrograms has the program or shim of each runtime, by name.
	RuntimePrograms map[string]string
	RootDir         string // where the Engine stores its data, on its machine
	CPUs            int
	Memory          int64     // bytes
	Holds           Holds     // the limits that it can enforce
	Time            time.Time // the clock of its machine; zero if not reported
}

// Holds reports which limits of containers an Engine can enforce. An Engine without control groups, such as a
// rootless one with version 1, enforces none.
type Holds struct{ Memory, Swap, PIDs, CPUs bool }

// Info returns a description of the Engine's machine.
func (c *Client) Info(ctx context.Context) (Info, error) {
	res, err := c.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return Info{}, c.translate(err, "ask the Engine for its configuration")
	}
	i := res.Info
	info := Info{
		CgroupVersion: i.CgroupVersion, Kernel: i.KernelVersion, Driver: i.Driver, DriverStatus: map[string]string{},
		RootDir: i.DockerRootDir, CPUs: i.NCPU, Memory: i.MemTotal, Runtimes: []string{i.DefaultRuntime}, RuntimePrograms: map[string]string{},
	}
	info.Holds = Holds{Memory: i.MemoryLimit, Swap: i.SwapLimit, PIDs: i.PidsLimit, CPUs: i.CPUCfsQuota}
	info.Time, _ = time.Parse(time.RFC3339Nano, i.SystemTime) // zero if not reported
	for _, kv := range i.DriverStatus {
		info.DriverStatus[kv[0]] = kv[1]
	}
	for _, o := range i.SecurityOptions { // "name=seccomp,profile=default"
		name, _, _ := strings.Cut(strings.TrimPrefix(o, "name="), ",")
		info.Security = append(info.Security, name)
	}
	for _, name := range slices.Sorted(maps.Keys(i.Runtimes)) {
		info.RuntimePrograms[name] = cmp.Or(i.Runtimes[name].Path, i.Runtimes[name].Type)
		if name != i.DefaultRuntime {
			info.Runtimes = append(info.Runtimes, name)
		}
	}
	return info, nil
}
