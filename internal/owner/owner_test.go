package owner

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestID_textForm(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if self.PID != os.Getpid() {
		t.Fatalf("pid %d, want %d", self.PID, os.Getpid())
	}
	back, err := Parse(self.String())
	if err != nil || back != self {
		t.Fatalf("Parse(%q) = %+v, %v", self, back, err)
	}
	for _, bad := range []string{"", "v2 a b c 1 2", "v1 a b c 0 2", "v1 a b c x 2", "v1 a b c 1 -2", "v1 a b c 1"} {
		if id, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", bad, id)
		}
	}
}

func TestJudge(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := self
	ended.PID = child.Process.Pid
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*ID)) ID {
		id := self
		change(&id)
		return id
	}
	for name, c := range map[string]struct {
		id   ID
		want State
	}{
		"this process":                  {self, Alive},
		"a process that has ended":      {ended, Dead},
		"the same pid, another start":   {with(func(id *ID) { id.Start++ }), Dead},
		"an earlier boot":               {with(func(id *ID) { id.Boot = "other" }), Dead},
		"another machine":               {with(func(id *ID) { id.Host = "other" }), Unknown},
		"another machine, same boot id": {with(func(id *ID) { id.Host, id.PID = "other", 1 }), Unknown},
		"another pid namespace":         {with(func(id *ID) { id.PIDNS = "other" }), Unknown},
	} {
		if got := Judge(self, c.id); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestMakeFolder_marksFirst(t *testing.T) {
	dir := t.TempDir()
	folder, err := MakeFolder(dir, "one", true)
	if err != nil {
		t.Fatal(err)
	}
	if got := ReadFolder(folder); got.Owner == "" || !got.Kept {
		t.Errorf("marks: %+v", got)
	}
	if _, err := MakeFolder(dir, "one", false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("same name again: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeFolder(dir, "empty", false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing folder of another process: %v", err)
	}
	for _, name := range []string{"young", "old"} { // left by processes that were killed while they created them
		if err := os.Mkdir(filepath.Join(dir, unnamedPrefix+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * unnamedFor)
	if err := os.Chtimes(filepath.Join(dir, unnamedPrefix+"old"), past, past); err != nil {
		t.Fatal(err)
	}
	if all, err := Folders(""); err != nil || len(all) != 0 {
		t.Errorf("missing folder: %v, %v", all, err)
	}
	all, err := Folders(dir)
	if err != nil || len(all) != 2 || all[0].Name != "empty" || all[1].Name != "one" {
		t.Errorf("listed %+v, %v", all, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("there is %v, %v", left, err)
	}
}

const discarding = "FUMEHOOD_TEST_DISCARDING" // folder in which this process creates and discards folders until it is killed

func TestMakeFolder_killed(t *testing.T) {
	if dir := os.Getenv(discarding); dir != "" {
		for {
			folder, err := MakeFolder(dir, "one", true)
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, "compose.yaml"), nil, 0o600)
			}
			if err == nil {
				_, err = os.Stdout.WriteString("x") // the reader kills this process
			}
			if err == nil {
				err = Discard(folder)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 200 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), discarding+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed above
		all, err := Folders(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.Owner == "" {
				t.Errorf("%s has no owner", f.Name)
			}
			if err := Discard(f.Path); err != nil {
				t.Error(err)
			}
		}
		if all, err = Folders(dir); err != nil || len(all) != 0 {
			t.Errorf("there is %v, %v", all, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	folder, err := MakeFolder(t.TempDir(), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := ReadFolder(folder); got.Kept {
		t.Errorf("before: %+v", got)
	}
	for _, expires := range []time.Time{time.Now().Add(time.Hour).Truncate(time.Second), {}} {
		if err := Keep(folder, expires); err != nil {
			t.Fatal(err)
		}
		if got := ReadFolder(folder); !got.Kept || !got.Expires.Equal(expires) {
			t.Errorf("until %v: %+v", expires, got)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, keptFile), []byte("tomorrow"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ReadFolder(folder); !got.Kept || !got.Expires.IsZero() {
		t.Errorf("with a damaged mark: %+v", got)
	}
	if err := Keep(filepath.Join(folder, "missing"), time.Time{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 2 {
		t.Errorf("files in it: %v, %v", left, err)
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	if id, err := Of(os.Getppid()); err != nil || id.PID != os.Getppid() {
		t.Errorf("%v, %v", id, err)
	}
	if id, err := Of(1 << 30); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("%v, %v", id, err)
	}
}
