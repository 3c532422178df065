//go:build amd64 || arm64

package native

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestMachine_admit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change map[string]string // of files
		files  int64             // the limit on descriptors
		user   int64             // the limit on processes
		want   string            // in the error; empty for none
	}{
		"room":                  {nil, 20_000, 0, ""},
		"no limits":             {map[string]string{"pids/a/pids.max": "max", "memory/a/memory.limit_in_bytes": "9223372036854771712"}, 0, 0, ""},
		"threads":               {map[string]string{"loadavg": "1 1 1 2/5000 9"}, 20_000, 0, "5000 of 5100 threads (kernel.threads-max)"},
		"IDs":                   {map[string]string{"sys/kernel/pid_max": "600"}, 20_000, 0, "500 of 600 process IDs (kernel.pid_max)"},
		"group":                 {map[string]string{"pids/a/pids.max": "95"}, 20_000, 0, "90 of 95 processes of the control group"},
		"group above":           {map[string]string{"pids/pids.max": "95", "pids/pids.current": "91"}, 20_000, 0, "91 of 95 processes of the control group"},
		"group between":         {map[string]string{"pids/a/pids.max": "max", "pids/a/b/pids.max": "95", "pids/a/b/pids.current": "91"}, 20_000, 0, "91 of 95 processes"},
		"own group":             {map[string]string{"pids/own/pids.max": "40", "pids/own/pids.current": "39"}, 20_000, 0, "39 of 40 processes of the control group"},
		"descriptors":           {nil, 50, 0, "descriptors of this process (RLIMIT_NOFILE)"},
		"user":                  {map[string]string{"loadavg": "1 1 1 2/700 9"}, 20_000, 1, "1 processes of the user (RLIMIT_NPROC)"},
		"memory":                {map[string]string{"meminfo": "MemTotal: 1000000 kB\nMemAvailable: 60000 kB\n"}, 20_000, 0, "bytes of memory are in use"},
		"memory of a group":     {map[string]string{"memory/a/memory.limit_in_bytes": "10000000"}, 20_000, 0, "5000000 of 10000000 bytes of memory of the control group"},
		"memory of a group, v2": {map[string]string{"memory/a/memory.max": "10000000", "memory/a/memory.current": "6000000"}, 20_000, 0, "6000000 of 10000000 bytes"},
		"cache of a group":      {map[string]string{"memory/a/memory.limit_in_bytes": "10000000", "memory/a/memory.stat": "total_inactive_file 1000000\ntotal_active_file 3000000\n"}, 20_000, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := map[string]string{
				"loadavg": "1 1 1 2/500 9", "sys/kernel/threads-max": "5100\n", "sys/kernel/pid_max": "32768\n",
				"meminfo":           "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n",
				"pids/a/b/pids.max": "max", "pids/a/b/pids.current": "9", "pids/a/pids.max": "1000", "pids/a/pids.current": "90",
				"memory/a/memory.limit_in_bytes": "900000000", "memory/a/memory.usage_in_bytes": "5000000",
			}
			for file, text := range c.change {
				files[file] = text
			}
			for file, text := range files {
				path := filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			m := machine{proc: dir, cgroups: dir, groups: []map[string]string{{"pids": dir + "/pids/a/b", "memory": dir + "/memory/a"}, {"pids": dir + "/pids/own"}}, descriptors: c.files, user: c.user}
			err := m.admit(1)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, fumehood.ErrLimit) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A control group's limit is what sandboxes can have, if it is smaller than the machine's memory.
func TestMachine_room(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n")
	group := filepath.Join(dir, "group")
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Fatal(err)
	}
	m := machine{proc: dir, cgroups: dir, groups: []map[string]string{{"memory": group}}}
	for limit, want := range map[string][2]int64{"max": {1000000 << 10, 900000 << 10}, "10000000": {10000000, 4000000}, "5000000": {5000000, 1}} {
		write("group/memory.max", limit)
		write("group/memory.current", "6000000")
		if memory, available := m.room(); memory != want[0] || available != want[1] {
			t.Errorf("with the limit %s: %d, %d; want %v", limit, memory, available, want)
		}
	}
}

// This machine has room, whatever it is like.
func TestMachine_this(t *testing.T) {
	t.Parallel()
	m := thisMachine()
	for _, r := range append(m.counts(), m.memory()...) {
		t.Logf("%s: %d of %d", r.name, r.used, r.limit)
		if r.used < 0 || r.used == 0 && r.limit > 0 && !strings.Contains(r.name, "group") {
			t.Errorf("%s: %d in use", r.name, r.used)
		}
	}
	if err := m.admit(1); err != nil {
		t.Error(err)
	}
}
