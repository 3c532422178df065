package owner

import (
	"os"
	"os/exec"
	"testing"
)

func TestTheTextFormReadsBack(t *testing.T) {
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
		"this process":                          {self, Alive},
		"a process that has ended":              {ended, Dead},
		"the same pid, started at another time": {with(func(id *ID) { id.Start++ }), Dead},
		"an earlier boot of this machine":       {with(func(id *ID) { id.Boot = "other" }), Dead},
		"another machine":                       {with(func(id *ID) { id.Host = "other" }), Unknown},
		"another machine with the same boot id": {with(func(id *ID) { id.Host, id.PID = "other", 1 }), Unknown},
		"another pid namespace":                 {with(func(id *ID) { id.PIDNS = "other" }), Unknown},
	} {
		if got := Judge(self, c.id); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
