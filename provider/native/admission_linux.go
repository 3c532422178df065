//go:build amd64 || arm64

package native

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
)

// What a service takes, and what must be left over for the programs of the machine, this process, and commands.
const (
	serviceThreads, spareThreads         = 8, 256
	serviceDescriptors, spareDescriptors = 5, 64
	serviceMemory, spareMemory           = 8 << 20, 64 << 20
)

// resource is something of the machine that sandboxes need.
type resource struct {
	name         string // and the limit's
	used, limit  int64
	needs, spare int64  // for one service more, and for everything else
	raise        string // what raises the limit
}

// machine has the files in which a machine describes itself, for tests.
type machine struct {
	proc, cgroups string
	groups        []map[string]string // the control groups above those of sandboxes, and those of this process, by controller
	descriptors   int64               // the limit
	user          int64               // the limit on processes of the user; 0 for none
}

// thisMachine returns the machine that runs this process.
func thisMachine() machine {
	m := machine{proc: "/proc", cgroups: cgroupRoot, groups: []map[string]string{delegatedGroups(), own()}}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		m.descriptors = limitValue(limit.Cur)
	}
	if rootless() && unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil {
		m.user = limitValue(limit.Cur)
	} else if !rootless() {
		m.groups[0] = map[string]string{"pids": filepath.Join(cgroupRoot, "pids", cgroupParent), "memory": filepath.Join(cgroupRoot, "memory", cgroupParent)}
		if cgroups.IsCgroup2UnifiedMode() {
			both := filepath.Join(cgroupRoot, cgroupParent)
			m.groups[0] = map[string]string{"pids": both, "memory": both}
		}
	}
	return m
}

// limitValue returns a limit of resources; 0 for none.
func limitValue(n uint64) int64 {
	if n > math.MaxInt64 {
		return 0
	}
	return int64(n)
}

// admit returns an ErrLimit if the machine has no room for services more. Otherwise the kernel would refuse a thread to some
// process of the machine, and Go's runtime aborts then: this process with all its sandboxes, or a guest.
func (m machine) admit(services int64) error {
	for _, r := range append(m.counts(), m.memory()...) {
		if r.limit <= 0 || r.used+services*r.needs+r.spare <= r.limit {
			continue
		}
		return &fumehood.Error{
			Class: fumehood.ErrLimit, Err: fmt.Errorf("no room for another sandbox: %d of %d %s are in use", r.used, r.limit, r.name),
			Hint: "close sandboxes, or " + r.raise,
		}
	}
	return nil
}

// counts returns the resources that are counted.
func (m machine) counts() []resource {
	_, threads, _ := strings.Cut(strings.Fields(m.text("loadavg") + " 0 0 0 0/0")[3], "/")
	all, _ := strconv.ParseInt(threads, 10, 64) // the kernel writes a number
	rs := []resource{
		{"threads (kernel.threads-max)", all, number(m.text("sys/kernel/threads-max")), serviceThreads, spareThreads, "raise kernel.threads-max (sysctl)"},
		{"process IDs (kernel.pid_max)", all, number(m.text("sys/kernel/pid_max")), serviceThreads, spareThreads, "raise kernel.pid_max (sysctl)"},
		{"descriptors of this process (RLIMIT_NOFILE)", m.countDescriptors(), m.descriptors, serviceDescriptors, spareDescriptors, "raise the limit on open files (ulimit -n)"},
	}
	if m.user > 0 && all+spareThreads > m.user { // otherwise there is no need to count those of the user
		rs = append(rs, resource{"processes of the user (RLIMIT_NPROC)", m.threads(uint32(os.Getuid())), m.user, serviceThreads, spareThreads / 4, "raise the limit on processes (ulimit -u)"}) //nolint:gosec // an id
	}
	m.above("pids", func(dir string) {
		used, limit := groupNumber(dir, "pids.current"), groupNumber(dir, "pids.max")
		rs = append(rs, resource{"processes of the control group " + dir, used, limit, serviceThreads, 0, "raise its pids.max"})
	})
	return rs
}

// memory returns the memory of the machine and of control groups.
func (m machine) memory() (rs []resource) {
	total, available := m.line("meminfo", "MemTotal:")<<10, m.line("meminfo", "MemAvailable:")<<10
	rs = append(rs, resource{"bytes of memory", total - available, total, serviceMemory, spareMemory, "add memory"})
	m.above("memory", func(dir string) {
		if limit := groupNumber(dir, "memory.max"); limit > 0 {
			used := groupNumber(dir, "memory.current") - groupLine(dir, "inactive_file") - groupLine(dir, "active_file") - groupLine(dir, "slab_reclaimable")
			rs = append(rs, resource{"bytes of memory of the control group " + dir, used, limit, serviceMemory, 0, "raise its memory.max"})
		}
		if limit := groupNumber(dir, "memory.limit_in_bytes"); limit > 0 && limit < total {
			used := groupNumber(dir, "memory.usage_in_bytes") - groupLine(dir, "total_inactive_file") - groupLine(dir, "total_active_file")
			rs = append(rs, resource{"bytes of memory of the control group " + dir, used, limit, serviceMemory, 0, "raise its memory.limit_in_bytes"})
		}
	})
	return rs
}

// own returns the control groups of this process, by controller.
func own() map[string]string {
	if !cgroups.IsCgroup2UnifiedMode() {
		groups, _ := ownGroups() // without one there are no limits
		return groups
	}
	groups, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	dir := filepath.Join(cgroupRoot, groups[""])
	return map[string]string{"pids": dir, "memory": dir}
}

// above calls f for the control groups of a controller above those of sandboxes, and for those of this process.
func (m machine) above(controller string, f func(dir string)) {
	seen := map[string]bool{}
	for _, groups := range m.groups {
		for dir := groups[controller]; strings.HasPrefix(dir, m.cgroups+"/") && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			f(dir)
		}
	}
}

// threads returns the number of threads of a user.
func (m machine) threads(user uint32) (n int64) {
	processes, _ := filepath.Glob(filepath.Join(m.proc, "[0-9]*"))
	for _, dir := range processes {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || st.Uid != user {
			continue // it may have ended
		}
		text, _ := os.ReadFile(filepath.Join(dir, "status"))
		n += after(string(text), "Threads:")
	}
	return n
}

func (m machine) text(file string) string {
	text, _ := os.ReadFile(filepath.Join(m.proc, file)) // without it there is no number
	return string(text)
}

// line returns the number after a word at the beginning of a line.
func (m machine) line(file, word string) int64 { return after(m.text(file), word) }

// countDescriptors returns the number of this process's descriptors. Since Linux 6.2 it is the size of their folder, which takes the
// kernel a microsecond instead of some for each.
func (m machine) countDescriptors() int64 {
	folder := filepath.Join(m.proc, "self/fd")
	if info, err := os.Stat(folder); err == nil && info.Size() > 0 {
		return info.Size()
	}
	entries, _ := os.ReadDir(folder)
	return int64(len(entries))
}

// groupNumber returns the number in a file of a control group; 0 if there is none, as with "max".
func groupNumber(dir, file string) int64 {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	return number(string(text))
}

// groupLine returns the number of a line of a control group's memory.stat.
func groupLine(dir, word string) int64 {
	text, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	return after(string(text), word)
}

func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return n
}

func after(text, word string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == word {
			return number(f[1])
		}
	}
	return 0
}
