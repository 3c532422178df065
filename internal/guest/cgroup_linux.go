package guest

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// evidence holds counters of the container's control group. They count the whole container, so a
// change while a command ran may have been caused by another process.
type evidence struct {
	oomKills, pidsLimits int64
}

// counter is one number in a file of the control group. It is read repeatedly through the same file descriptor.
type counter struct {
	fd  int
	key string // the first word of the line; empty if the file holds only the number
}

func (c counter) read() int64 {
	if c.fd < 0 {
		return 0
	}
	var buf [1024]byte
	n, err := wire.RawPread(c.fd, buf[:])
	if err != nil {
		return 0
	}
	return number(string(buf[:n]), c.key)
}

// number returns the number after key in the lines of text. With an empty key it returns the number in the first
// line. It returns 0 if there is no number, as with "max".
func number(text, key string) int64 {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if key != "" {
			rest, ok := strings.CutPrefix(line, key+" ")
			if !ok {
				continue
			}
			line = rest
		}
		n, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			return 0 // "max"
		}
		return n
	}
	return 0
}

// cgroup is the container's own control group, version 1 or 2, as Docker mounts it.
type cgroup struct {
	oomKills, pidsLimits counter
	peak                 counter // bytes; 0 if it cannot be read
	tasks                counter // the current number of processes and threads
	cpuTime              counter // processor time, in units of cpuUnit
	cpuUnit              time.Duration
	limit                int64 // on tasks, when it was opened; 0 for none
}

// cgroupRoot is the mount point of the control groups.
const cgroupRoot = "/sys/fs/cgroup"

func openCgroup(root string) cgroup {
	if v2 := root + "/memory.events"; exists(v2) {
		return cgroup{
			oomKills:   openCounter(v2, "oom_kill"),
			pidsLimits: openCounter(root+"/pids.events", "max"),
			peak:       openCounter(root+"/memory.peak", ""),
			tasks:      openCounter(root+"/pids.current", ""),
			cpuTime:    openCounter(root+"/cpu.stat", "usage_usec"),
			cpuUnit:    time.Microsecond,
			limit:      once(root + "/pids.max"),
		}
	}
	return cgroup{
		oomKills:   openCounter(root+"/memory/memory.oom_control", "oom_kill"),
		pidsLimits: openCounter(root+"/pids/pids.events", "max"),
		peak:       openCounter(root+"/memory/memory.max_usage_in_bytes", ""),
		tasks:      openCounter(root+"/pids/pids.current", ""),
		cpuTime:    openCounter(root+"/cpuacct/cpuacct.usage", ""),
		cpuUnit:    time.Nanosecond,
		limit:      once(root + "/pids/pids.max"),
	}
}

// noCgroup is a control group whose counters are always 0.
var noCgroup = cgroup{oomKills: counter{fd: -1}, pidsLimits: counter{fd: -1}, peak: counter{fd: -1}, tasks: counter{fd: -1}, cpuTime: counter{fd: -1}}

func openCounter(path, key string) counter {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return counter{fd: fd, key: key}
}

// once reads a counter once. It returns 0 if it cannot be read.
func once(path string) int64 {
	c := openCounter(path, "")
	defer func() { _ = unix.Close(c.fd) }() // does nothing to -1
	return c.read()
}

func (c cgroup) read() evidence {
	return evidence{oomKills: c.oomKills.read(), pidsLimits: c.pidsLimits.read()}
}
