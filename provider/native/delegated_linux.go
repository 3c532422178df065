//go:build amd64 || arm64

package native

import (
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// delegates reports whether this process makes control groups only below its own ones, if it may: it runs without root,
// or the hierarchies are read-only or missing, as in many containers.
func delegates() bool { return rootless() || unwritable() != nil }

// unwritable returns why root cannot make control groups; nil if it can.
func unwritable() error {
	needed := []string{cgroupRoot + "/memory", cgroupRoot + "/pids"}
	if cgroups.IsCgroup2UnifiedMode() {
		needed = []string{cgroupRoot}
	}
	for _, path := range needed {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return &os.PathError{Op: "access", Path: path, Err: err}
		}
	}
	return nil
}

// openDelegated returns a control group below others, by controller. If there are none, the result is the zero value.
func openDelegated(above map[string]string, name string, limits fumehood.Limits) (cgroup, error) {
	paths := map[string]string{}
	for controller, path := range above {
		paths[controller] = filepath.Join(path, cgroupParent, name)
	}
	if len(paths) == 0 {
		return cgroup{}, nil
	}
	r := resources(limits)
	r.SkipDevices = true // needs root
	if paths["memory"] == "" {
		r.Memory, r.MemorySwap = 0, 0
	}
	if paths["cpu"] == "" {
		r.CpuPeriod, r.CpuQuota = 0, 0
	}
	if paths["pids"] == "" {
		r.PidsLimit = nil
	}
	config := &cgroups.Cgroup{Path: "/" + cgroupParent + "/" + name, Resources: r, Rootless: true}
	if cgroups.IsCgroup2UnifiedMode() {
		m, err := fs2.NewManager(config, paths["freezer"])
		return cgroup{Manager: m, above: above}, err
	}
	m, err := fs.NewManager(config, paths)
	return cgroup{Manager: m, above: above}, err
}

// delegatedGroups returns this process's own control groups in which its user may make others, by controller. With version 2
// this is one group, or none.
func delegatedGroups() map[string]string {
	found := map[string]string{}
	if cgroups.IsCgroup2UnifiedMode() {
		own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
		if err != nil {
			return nil
		}
		dir := strings.TrimSuffix(filepath.Join(cgroupRoot, own[""]), hostGroup)
		for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
			if unix.Access(filepath.Join(dir, file), unix.W_OK) != nil {
				return nil
			}
		}
		if !isDelegated(dir) {
			return nil
		}
		for _, controller := range append(available(dir), "freezer") {
			found[controller] = dir
		}
		return found
	}
	own, err := ownGroups()
	if err != nil {
		return nil
	}
	for controller, path := range own {
		if controller != "devices" && unix.Access(path, unix.W_OK) == nil && unix.Access(filepath.Join(path, "tasks"), unix.W_OK) == nil {
			found[controller] = path
		}
	}
	return found
}

// isDelegated reports whether a group that the user may write was handed over to processes like this one: systemd has
// marked it, or the user may not write the one above it. A user's session has many other groups that the user may write,
// and whose processes stay where they are.
func isDelegated(dir string) bool {
	if n, err := unix.Getxattr(dir, "user.delegate", nil); err == nil && n > 0 {
		return true
	}
	return os.Geteuid() == 0 || dir == cgroupRoot || unix.Access(filepath.Dir(dir), unix.W_OK) != nil
}

// available returns the controllers of version 2 that sandboxes use and that groups below a folder can have.
func available(dir string) []string {
	text, _ := cgroups.ReadFile(dir, "cgroup.controllers") // without the file there are none
	return slices.DeleteFunc(strings.Fields(text), func(name string) bool { return !slices.Contains([]string{"cpu", "memory", "pids"}, name) })
}

// hostGroup is the end of the path of the group to which vacate moves processes.
const hostGroup = "/" + cgroupParent + "/host"

// vacate enables the controllers of version 2 for the groups below one. The kernel allows that only if no process is in
// it, except in the first group of all. So vacate moves all processes in it to a group below.
func vacate(dir string) error {
	all := available(dir)
	if len(all) == 0 {
		return nil
	}
	for try := 0; ; try++ { // other processes may start more meanwhile
		err := cgroups.WriteFile(dir, "cgroup.subtree_control", "+"+strings.Join(all, " +"))
		if !errors.Is(err, unix.EBUSY) {
			for i := 0; err != nil && i < len(all); i++ { // the others, if one cannot be enabled
				_ = cgroups.WriteFile(dir, "cgroup.subtree_control", "+"+all[i]) // limits that a group does not have fail when they are set
			}
			return nil
		}
		if try == 10 {
			return err
		}
		pids, err := cgroups.GetPids(dir)
		if err == nil {
			err = os.MkdirAll(dir+hostGroup, 0o755) //nolint:gosec // as all control groups
		}
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := cgroups.WriteCgroupProc(dir+hostGroup, pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move processes out of a control group: %w", err)
			}
		}
	}
}

// makeDelegated makes the control group of version 2 at a path below one that was handed over.
// Manager.Apply would also enable controllers in all groups further above that the user may write. These belong to the
// user's session, and a group with processes there could become a threaded one, below which memory cannot be limited.
func makeDelegated(above, path string) error {
	if err := os.MkdirAll(above+path, 0o755); err != nil { //nolint:gosec // as all control groups
		return err
	}
	for name := range strings.SplitSeq(strings.Trim(filepath.Dir(path), "/"), "/") {
		above = filepath.Join(above, name)
		if err := vacate(above); err != nil {
			return err
		}
	}
	return nil
}

// groupsFile is the file, in the folder of a sandbox of a process that delegates, that contains the paths of the groups
// above its own. Other processes of the user are in other groups.
const groupsFile = "groups.json"

// recordedGroups returns the contents of the file in a folder, and whether there is one.
func recordedGroups(folder string) (above map[string]string, recorded bool, err error) {
	text, err := os.ReadFile(filepath.Join(folder, groupsFile))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &above)
	}
	return above, true, err
}

// recordGroups writes the file, before the control groups of the sandbox with a folder are made.
func recordGroups(folder string) error {
	if !delegates() {
		return nil
	}
	text, err := json.Marshal(delegatedGroups())
	if err != nil {
		return err
	}
	return owner.WriteFile(filepath.Join(folder, groupsFile), text)
}
