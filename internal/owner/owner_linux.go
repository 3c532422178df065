package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func machine() (ID, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ID{}, err
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ID{}, err
	}
	name, err := os.Hostname()
	if err != nil {
		return ID{}, err
	}
	// Cloned machines may share the machine ID, and containers have that of their image. So the ID includes the name
	// too. If in doubt, an owner on another machine is not judged, rather than judged dead.
	host, err := os.ReadFile("/etc/machine-id")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ID{}, err
	}
	return ID{Host: word(string(host)) + "/" + word(name), Boot: word(string(boot)), PIDNS: word(ns)}, nil
}

// startTime reads field 22 of /proc/PID/stat (proc(5)): clock ticks since boot. A zombie counts as ended.
func startTime(pid int) (start uint64, running bool, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	// The program's name, in parentheses, may contain anything, so the fields are read after the last ")".
	rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	f := strings.Fields(rest) // f[0] is field 3, the state
	if len(f) < 20 {
		return 0, false, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, false, nil
	}
	start, err = strconv.ParseUint(f[19], 10, 64)
	return start, err == nil, err
}
