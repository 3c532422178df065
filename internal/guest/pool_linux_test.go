package guest

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGuest_hasRoom(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string // of the control group
		nproc uint64
		want  bool
	}{
		"no control group":    {nil, math.MaxUint64, true},
		"version 1, no limit": {map[string]string{"pids/pids.max": "max\n", "pids/pids.current": "900\n"}, math.MaxUint64, true},
		"version 1, room":     {map[string]string{"pids/pids.max": "64\n", "pids/pids.current": "32\n"}, math.MaxUint64, true},
		"version 1, too few":  {map[string]string{"pids/pids.max": "64\n", "pids/pids.current": "33\n"}, math.MaxUint64, false},
		"version 2, too few": {
			map[string]string{"memory.events": "oom_kill 0\n", "pids.max": "20\n", "pids.current": "5\n"}, math.MaxUint64, false,
		},
		"user's limit, room":    {nil, fewProcesses, true},
		"user's limit, too few": {nil, fewProcesses - 1, false},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			file = filepath.Join(root, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		g := &guest{cgroup: openCgroup(root)}
		g.limits[unix.RLIMIT_NPROC].Cur = c.nproc
		if got := g.hasRoom(); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
