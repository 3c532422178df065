//go:build amd64 || arm64

package native

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // sets device rules
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	// cgroupParent is the control group that contains those of all sandboxes.
	cgroupParent = "fumehood"
	// cpuPeriod is the period of CPU limits in microseconds, as in Docker.
	cpuPeriod = 100_000
)

// controllers are the controllers of control groups version 1 that sandboxes use, and whether the sandbox sees them.
// Java ignores all limits if it does not see cpuset.
var controllers = map[string]bool{
	"memory": true, "pids": true, "cpu": true, "cpuacct": true, "cpuset": true, "devices": false, "freezer": false,
}

// cgroup is a sandbox's control group, in each hierarchy of version 1. With the zero value there is no group: its
// methods do nothing.
type cgroup struct {
	cgroups.Manager
	above map[string]string // of a process that delegates: the groups above, by controller
	code  map[string]string // the groups for programs, by controller; empty if the sandbox's group is not divided
}

// codeGroup is the name of the control group, below a sandbox's, in which programs of the sandbox run. Those that run them,
// the guest and its workers, stay above: its limits do not apply to them, and all programs together get no more processor
// time than one of them.
const codeGroup = "code"

// dividing are the controllers for which there is such a group, and its files that the sandbox sees, with version 2, in place of
// those of its own group. There memory has no groups for single threads.
var dividing = map[string][]string{"pids": {"pids.max", "pids.current", "pids.events"}, "cpu": {"cpu.max"}}

// divide returns the control group with one for programs, to which the limits of processes and processors apply.
func (c cgroup) divide() cgroup {
	if c.Manager == nil {
		return c
	}
	c.code = map[string]string{}
	for controller := range dividing {
		if c.has(controller) {
			c.code[controller] = filepath.Join(c.Path(controller), codeGroup)
		}
	}
	return c
}

// codes returns the groups for programs: with version 2 at most one.
func (c cgroup) codes() []string { return slices.Compact(slices.Sorted(maps.Values(c.code))) }

// reopen is divide for a control group that exists.
func (c cgroup) reopen() cgroup {
	divided := c.divide()
	for _, path := range divided.codes() {
		if _, err := os.Stat(path); err != nil {
			return c
		}
	}
	return divided
}

// openTasks opens the files by which a thread of the guest moves to the groups for programs and back: two for each.
func (c cgroup) openTasks() (files []*os.File, err error) {
	name := "tasks"
	if cgroups.IsCgroup2UnifiedMode() {
		name = "cgroup.threads"
	}
	for _, path := range c.codes() {
		for _, dir := range []string{path, filepath.Dir(path)} {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
			if err != nil {
				closeFiles(files)
				return nil, err
			}
			files = append(files, f)
		}
	}
	return files, nil
}

// closeFiles closes files to which nothing was written.
func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// openCgroup returns a control group of the sandbox with a folder, which need not exist. There may be none for a process
// that delegates, as for the sandboxes of one.
func openCgroup(folder, name string, limits fumehood.Limits) (cgroup, error) {
	above, recorded, err := recordedGroups(folder)
	switch {
	case err != nil:
		return cgroup{}, err
	case recorded:
		return openDelegated(above, name, limits)
	case rootless():
		return openDelegated(delegatedGroups(), name, limits)
	case delegates() && owner.ReadFolder(folder).Kept:
		return cgroup{}, fmt.Errorf("the sandbox's control groups cannot be used: %w", unwritable())
	case delegates(): // the start was interrupted before it made anything
		return cgroup{}, nil
	}
	config := &cgroups.Cgroup{Path: "/" + cgroupParent + "/" + name, Resources: resources(limits)}
	if cgroups.IsCgroup2UnifiedMode() {
		m, err := fs2.NewManager(config, filepath.Join(cgroupRoot, config.Path))
		return cgroup{Manager: m}, err
	}
	m, err := fs.NewManager(config, nil)
	if err != nil {
		return cgroup{}, err
	}
	paths := map[string]string{}
	for name := range controllers {
		if path := m.Path(name); path != "" {
			paths[name] = path
		}
	}
	m, err = fs.NewManager(config, paths)
	return cgroup{Manager: m}, err
}

// has reports whether the sandbox has a control group of a controller.
func (c cgroup) has(controller string) bool {
	if c.Manager == nil || c.above != nil {
		return c.above[controller] != ""
	}
	return cgroups.IsCgroup2UnifiedMode() || c.Path(controller) != ""
}

// wholeCgroup returns the control group with a name in all hierarchies of version 1, in each of which a runtime makes
// one.
func wholeCgroup(folder, name string) (cgroup, error) {
	if _, recorded, _ := recordedGroups(folder); recorded || cgroups.IsCgroup2UnifiedMode() || delegates() {
		return openCgroup(folder, name, fumehood.Limits{})
	}
	m, err := fs.NewManager(&cgroups.Cgroup{Path: "/" + cgroupParent + "/" + name, Resources: &cgroups.Resources{}}, nil)
	return cgroup{Manager: m}, err
}

// resources returns the limits in the form of the control groups.
func resources(limits fumehood.Limits) *cgroups.Resources {
	r := &cgroups.Resources{Devices: deviceRules()}
	if limits.Memory > 0 {
		r.Memory, r.MemorySwap = limits.Memory, limits.Memory // the second is the sum
	}
	if limits.CPUs > 0 {
		r.CpuPeriod, r.CpuQuota = cpuPeriod, int64(limits.CPUs*cpuPeriod)
	}
	if limits.PIDs > 0 {
		r.PidsLimit = &limits.PIDs
	}
	return r
}

// deviceRules returns the devices that a sandbox may open. Only its set-up makes nodes: afterwards nobody has CAP_MKNOD.
func deviceRules() []*devices.Rule {
	rules := []*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"}}
	for _, d := range []struct{ major, minor int64 }{
		{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, // null, zero, full, random, urandom
		{5, 0}, {5, 2}, {136, devices.Wildcard}, // tty, ptmx, pts
	} {
		rules = append(rules, &devices.Rule{Type: devices.CharDevice, Major: d.major, Minor: d.minor, Permissions: "rwm", Allow: true})
	}
	return rules
}

// create makes the control group, without limits.
func (c cgroup) create() error {
	if c.Manager == nil {
		return nil
	}
	if path, ok := c.GetPaths()[""]; ok {
		config, err := c.GetCgroups()
		if err != nil {
			return err
		}
		above := strings.TrimSuffix(path, config.Path)
		if err := vacate(above); err != nil {
			return err
		}
		if c.above == nil {
			err = c.Apply(-1)
		} else {
			err = makeDelegated(above, config.Path)
		}
		if err != nil {
			return err
		}
	} else if err := c.Apply(-1); err != nil {
		return err
	}
	return c.createCode()
}

// createCode makes the groups for programs. If the kernel refuses one for threads, with version 2, there is none.
func (c cgroup) createCode() error {
	paths := c.codes()
	for _, path := range paths {
		if err := os.Mkdir(path, 0o755); err != nil && !cgroups.IsCgroup2UnifiedMode() { //nolint:gosec // as all control groups
			return err
		}
	}
	if !cgroups.IsCgroup2UnifiedMode() || len(paths) == 0 {
		return nil
	}
	enabled := available(filepath.Dir(paths[0]))
	maps.DeleteFunc(c.code, func(controller, _ string) bool { return !slices.Contains(enabled, controller) })
	err := cgroups.WriteFile(paths[0], "cgroup.type", "threaded")
	for controller := range c.code {
		err = errors.Join(err, cgroups.WriteFile(filepath.Dir(paths[0]), "cgroup.subtree_control", "+"+controller))
	}
	if err != nil || len(c.code) == 0 {
		return c.removeCode(paths...)
	}
	return nil
}

// removeCode gives up the groups for programs, in which nothing may be left.
func (c cgroup) removeCode(paths ...string) error {
	clear(c.code)
	for _, path := range paths {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "rmdir", Path: path, Err: err}
		}
	}
	return nil
}

// undivide gives up the group for programs, between which and its own the guest's threads cannot move, and limits the whole
// instead. Some of them may be there.
func (c cgroup) undivide() error {
	whole, code := c.Path(""), c.codes()
	for try := 0; ; try++ { // one there may start a worker meanwhile
		pids, err := cgroups.GetPids(whole)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := cgroups.WriteCgroupProc(whole, pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if err = c.removeCode(code...); err == nil {
			return c.limit()
		}
		if !errors.Is(err, unix.EBUSY) || try == 10 {
			return err
		}
	}
}

// limit sets the limits.
func (c cgroup) limit() error {
	if c.Manager == nil {
		return nil
	}
	config, err := c.GetCgroups()
	if err != nil {
		return err
	}
	if err := c.limitSockets(config.Memory); err != nil {
		return err
	}
	all, rest := config.Resources, *config.Resources
	if err := c.limitCode(&rest); err != nil {
		return err
	}
	done := false
	firstLimit.Do(func() { done, err = true, c.Set(&rest) })
	if !done {
		err = c.Set(&rest)
	}
	config.Resources = all // for undivide
	return err
}

// limitCode sets the limits of the groups for programs, and takes them out of those of the whole.
func (c cgroup) limitCode(r *cgroups.Resources) error {
	if path, ok := c.code["pids"]; ok && r.PidsLimit != nil {
		if err := cgroups.WriteFile(path, "pids.max", strconv.FormatInt(*r.PidsLimit, 10)); err != nil {
			return err
		}
		r.PidsLimit = nil
	}
	if path, ok := c.code["cpu"]; ok && r.CpuQuota > 0 {
		files := map[string]string{"cpu.cfs_period_us": strconv.FormatUint(r.CpuPeriod, 10), "cpu.cfs_quota_us": strconv.FormatInt(r.CpuQuota, 10)}
		if cgroups.IsCgroup2UnifiedMode() {
			files = map[string]string{"cpu.max": fmt.Sprintf("%d %d", r.CpuQuota, r.CpuPeriod)}
		}
		for file, value := range files {
			err := cgroups.WriteFile(path, file, value)
			if errors.Is(err, unix.EINVAL) { // it is more than a control group above allows, for example a container's
				return &fumehood.Error{
					Class: fumehood.ErrLimit, Err: fmt.Errorf("the limit of %g cores is more than the control group of this process allows", float64(r.CpuQuota)/float64(r.CpuPeriod)),
					Hint: "lower the sandbox's limit of cores, or raise that of the container in which this process is",
				}
			}
			if err != nil {
				return err
			}
		}
		r.CpuPeriod, r.CpuQuota = 0, 0
	}
	return nil
}

// firstLimit keeps the first call of Set alone: then the package finds out the names of files, without a lock.
var firstLimit sync.Once

// enter makes processes that this thread starts with the attributes begin in the control group, until leave is called.
// With version 1 the thread itself moves there: a thread that moves itself takes the kernel some microseconds, but
// another process up to 12 ms, because the kernel waits for all processors (synchronize_rcu).
func (c cgroup) enter(attributes *syscall.SysProcAttr) (leave func() error, err error) {
	if c.Manager == nil {
		return func() error { return nil }, nil
	}
	paths := c.GetPaths()
	if path, ok := paths[""]; ok {
		dir, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		attributes.UseCgroupFD, attributes.CgroupFD = true, int(dir.Fd())
		return dir.Close, nil
	}
	own, err := ownGroups()
	if err != nil {
		return nil, err
	}
	homes := map[string]string{}
	for controller := range paths {
		homes[controller] = own[controller]
	}
	leave = func() error {
		if err := moveThread(homes); err != nil && !rootless() { // without root it may not return, but ends soon
			return err
		}
		return nil
	}
	if err := moveThread(paths); err != nil {
		return nil, errors.Join(err, leave())
	}
	return leave, nil
}

// ownGroups returns the control groups, with version 1, that this process was in at the first call.
var ownGroups = sync.OnceValues(func() (map[string]string, error) {
	own := map[string]string{}
	for name := range controllers {
		path, err := cgroups.GetOwnCgroupPath(name)
		if cgroups.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		own[name] = path
	}
	return own, nil
})

// moveThread moves the calling thread into control groups with version 1.
func moveThread(groups map[string]string) error {
	for _, path := range groups {
		f, err := os.OpenFile(filepath.Join(path, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("0") // the calling thread
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// visible returns what the sandbox sees, by its name there. With version 2 programs find their limits both in the sandbox's group,
// as most look for them, and in their own one: Go's runtime looks only where that is mounted.
func (c cgroup) visible() map[string]string {
	all := map[string]string{}
	if c.Manager == nil {
		return all
	}
	for name, path := range c.GetPaths() {
		if name == "" || controllers[name] {
			all[name] = cmp.Or(c.code[name], path)
		}
	}
	if !cgroups.IsCgroup2UnifiedMode() {
		return all
	}
	for controller, path := range c.code {
		all[codeGroup] = path
		for _, file := range dividing[controller] {
			all[file] = filepath.Join(path, file)
		}
	}
	return all
}

// ooms returns the number of out-of-memory kills; 0 if it is unknown.
func (c cgroup) ooms() int {
	if c.Manager == nil {
		return 0
	}
	n, err := c.OOMKillCount()
	if err != nil {
		return 0
	}
	return int(n) //nolint:gosec // a small number
}

// frozen reports whether the processes in the control group are suspended; false if it is unknown.
func (c cgroup) frozen() bool {
	if !c.has("freezer") {
		return false
	}
	state, err := c.GetFreezerState()
	return err == nil && state == cgroups.Frozen
}
