//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // sets device rules
	"golang.org/x/sys/unix"
)

// removeWithin bounds the wait for the end of killed processes in a control group.
const removeWithin = 10 * time.Second

// remove kills what runs in the control group, and removes it. It may be called again.
func (c cgroup) remove(ctx context.Context) error {
	if c.Manager == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := c.removeOnce()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("remove control groups: %w", err)
		}
	}
}

func (c cgroup) removeOnce() error {
	var errs []error
	busy := false
	for _, path := range c.GetPaths() {
		_ = unix.Rmdir(filepath.Join(path, codeGroup)) // if it cannot be removed, the one above cannot either
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: path, Err: err})
			busy = true
		}
	}
	if busy && cgroups.WriteFile(c.Path("freezer"), "cgroup.kill", "1") != nil { // version 1, or Linux before 5.14
		_ = c.Freeze(cgroups.Thawed) // a frozen process does not end
		pids, err := c.processes()
		errs = append(errs, err)
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // may have ended meanwhile
		}
	}
	return errors.Join(errs...)
}

// below returns the names of the control groups in this one, without that for programs: what runs there ends with the rest of this
// one, since it may be a thread of a process that is not there.
func (c cgroup) below() (names []string) {
	if c.Manager == nil {
		return nil
	}
	for _, path := range c.GetPaths() {
		entries, _ := os.ReadDir(path) // there may be no group
		for _, e := range entries {
			if e.IsDir() && e.Name() != codeGroup && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// processes returns the processes in the control group. A process of the host, of which a thread is just starting
// something there, is not one.
func (c cgroup) processes() ([]int, error) {
	config, err := c.GetCgroups()
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	find := cgroups.GetAllPids
	if cgroups.IsCgroup2UnifiedMode() && len(c.code) > 0 {
		find = cgroups.GetPids // has those below, of which it would find threads
	}
	for _, path := range c.GetPaths() {
		pids, err := find(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, pid := range pids {
			if pid > 0 && holds(config.Path, pid) {
				found[pid] = true
			}
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// holds reports whether the first thread of a process is in the control group with a path, or below it. If that thread
// has ended, it is shown in no group, and the others count.
func holds(path string, pid int) bool {
	files := []string{fmt.Sprintf("/proc/%d/cgroup", pid)}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if name := strings.LastIndex(string(stat), ") "); err == nil && name > 0 && strings.HasPrefix(string(stat[name:]), ") Z") {
		files, _ = filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", pid))
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false // has ended
		}
		for line := range strings.Lines(string(text)) {
			if i := strings.Index(line, path); i >= 0 && strings.ContainsAny(line[i+len(path):][:1], "/ \n") {
				return true
			}
		}
		return false
	})
}
