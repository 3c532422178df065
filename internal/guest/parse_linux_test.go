package guest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCgroup_read(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"version 1": {
			"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "pids/pids.events": "max 5\n",
			"memory/memory.max_usage_in_bytes": "70000\n",
		},
		"version 2": {
			"memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n", "pids.events": "max 5\n", "memory.peak": "70000\n",
		},
	} {
		root := t.TempDir()
		for file, text := range files {
			file = filepath.Join(root, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		c := openCgroup(root)
		if got, want := c.read(), (evidence{oomKills: 3, pidsLimits: 5}); got != want || c.peak.read() != 70000 {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if got := openCgroup(t.TempDir()).read(); got != (evidence{}) {
		t.Errorf("without a control group: %+v", got)
	}
}

func TestNumber(t *testing.T) {
	const events = "low 0\noom 3\noom_kill 12\noom_group_kill 7\n"
	for _, c := range []struct {
		text, key string
		want      int64
	}{
		{events, "oom_kill", 12},
		{events, "oom", 3},
		{events, "oom_k", 0},
		{events, "none", 0},
		{"max 5", "max", 5},
		{"max 5\n", "", 0},
		{"123456789012\n", "", 123456789012},
		{"max\n", "", 0},
		{"", "", 0},
		{"", "max", 0},
		{"max ", "max", 0},
		{"max  5", "max", 0},
		{"99999999999999999999\n", "", 0},
	} {
		if got := number(c.text, c.key); got != c.want {
			t.Errorf("number(%q, %q) is %d, want %d", c.text, c.key, got, c.want)
		}
	}
	if got := openCounter("/no/such/file", "").read(); got != 0 {
		t.Errorf("missing file: got %d", got)
	}
}

func TestLookUp(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, mode := range map[string]os.FileMode{"a/tool": 0o755, "b/tool": 0o755, "b/only": 0o755, "plain/text": 0o644, "here": 0o755, "folder/tool/x": 0o644} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		want string
		err  error
	}{
		{"tool", []string{"PATH=" + dir + "/a:" + dir + "/b"}, dir + "/a/tool", nil},
		{"tool", []string{"PATH=/none:" + dir + "/b"}, dir + "/b/tool", nil},
		{"tool", []string{"PATH=" + dir + "/folder:" + dir + "/b"}, dir + "/b/tool", nil}, // a directory is not a program
		{"tool", []string{"PATH=" + dir + "/folder"}, "", unix.EISDIR},
		{"text", []string{"PATH=" + dir + "/plain:/none"}, "", unix.EACCES},
		{"text", []string{"PATH=" + dir + "/plain:" + dir + "/here"}, "", unix.EACCES},
		{"here", []string{"PATH="}, "./here", nil},
		{"here", []string{"PATH=/none:"}, "./here", nil},
		{"here", []string{"PATH=:/none"}, "./here", nil},
		{"tool", []string{"PATH=a"}, "a/tool", nil},
		{"only", []string{"PATH=" + dir + "/a", "PATH=" + dir + "/b"}, dir + "/b/only", nil}, // the last one counts
		{"only", []string{"XPATH=" + dir + "/b", "PATH=/none"}, "", unix.ENOENT},
		{"none", []string{"PATH=" + dir + "/a"}, "", unix.ENOENT},
		{"here", []string{"PATH=" + dir + "/here"}, "", unix.ENOENT}, // a file is not a directory
		{"tool", []string{"PATH=" + dir + "/loop"}, "", unix.ENOENT}, // a path that cannot be entered contains nothing
		{"here/x", nil, "here/x", unix.ENOTDIR},
		{"./here", nil, "./here", nil},
		{"a/none", []string{"PATH=" + dir}, "a/none", unix.ENOENT},
		{"/", nil, "/", unix.EISDIR},
		{"..", []string{"PATH=" + dir}, "", unix.EISDIR},
	} {
		for _, from := range []string{"", dir} {
			got, err := lookUp(from, c.name, c.env)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%q with %q from %q: %q, %v; want %q, %v", c.name, c.env, from, got, err, c.want, c.err)
			}
		}
	}
	if got := pathOf([]string{"HOME=/"}); got != "/bin:/usr/bin" {
		t.Errorf("without PATH: %q", got)
	}
}

func TestEnvironment_precedence(t *testing.T) {
	t.Setenv("FUMEHOOD_A", "guest")
	t.Setenv("FUMEHOOD_B", "guest")
	env := words(environment([][]byte{[]byte("FUMEHOOD_A=command"), []byte("FUMEHOOD_C=\xff=x"), []byte("FUMEHOOD_D=")}))
	for want, times := range map[string]int{
		"FUMEHOOD_A=command": 1, "FUMEHOOD_A=guest": 0, "FUMEHOOD_B=guest": 1, "FUMEHOOD_C=\xff=x": 1, "FUMEHOOD_D=": 1,
	} {
		n := 0
		for _, kv := range env {
			if kv == want {
				n++
			}
		}
		if n != times {
			t.Errorf("%q occurs %d times, want %d", want, n, times)
		}
	}
	if got := words(environment(nil)); !slices.Contains(got, "FUMEHOOD_B=guest") {
		t.Error("without additions, the guest's own variables are missing")
	}
}

func TestStat_programName(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"a) R 1 (", ") Z 0 0 0", "((((", "))))", "x y\tz\n) S 1", "\xff\xfe)"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(sleep, path); err != nil {
			t.Fatal(err)
		}
		before := now()
		cmd := exec.CommandContext(t.Context(), path, "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		parent, state, start := stat(pid)
		if parent != os.Getpid() || !strings.ContainsRune("RSD", rune(state)) || start < before || start > now() {
			t.Errorf("%q: parent %d, state %c, started at %d, not before %d", name, parent, state, start, before)
		}
		if !slices.Contains(slices.Collect(children(os.Getpid())), pid) || !treeOf(os.Getpid()).has(pid) || treeOf(pid).has(os.Getpid()) {
			t.Errorf("%q: wrong place in the process tree", name)
		}
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		until(t, name+" is stopped", func() bool { return stopped(statFields(pid)) })
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, name+" is a zombie", func() bool { _, state, _ := stat(pid); return state == 'Z' })
		if parent, _ := parentOf(pid); parent != 0 {
			t.Errorf("%q: a zombie has a parent", name)
		}
		_ = cmd.Wait() // always an error: the process was killed
		if f := statFields(pid); f != nil {
			t.Errorf("%q: a reaped process still has fields %q", name, f)
		}
	}
}

func TestPendingKill(t *testing.T) {
	fields := strings.Fields("S" + strings.Repeat(" 0", 49))
	for mask, want := range map[string]bool{"0": false, "256": true, "257": true, "255": false, "65536": false} {
		fields[28] = mask
		if got := pendingKill(fields); got != want {
			t.Errorf("with %s pending: %v", mask, got)
		}
	}
	if fieldsOf("1 (x) S 1 1") != nil || fieldsOf("") != nil || stopped(nil) {
		t.Error("found fields in incomplete text")
	}
}

// until waits until cond returns true.
func until(t *testing.T, condition string, cond func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("not within 30 s: %s", condition)
		case <-tick.C:
		}
	}
}

func TestUsersIn(t *testing.T) {
	for status, want := range map[string]string{
		"Name:\tx\nUmask:\t0022\nUid:\t1000\t1001\t1002\t1003\nGid:\t1\t1\t1\t1\n": "1000 1001 1002 1003",
		"Name:\t\\nUid:\t0\t0\t0\t0\nUid:\t7\t7\t7\t7\n":                           "7 7 7 7",
		"Name:\tx\n": "",
		"":           "",
	} {
		if got := usersIn(status); got != want {
			t.Errorf("usersIn(%q) is %q, want %q", status, got, want)
		}
	}
	if users(os.Getpid()) == "" || !mayKill(os.Getpid()) {
		t.Error("no users found for this process")
	}
}
