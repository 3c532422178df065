package reaper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/owner"
)

const (
	ownerVar = "FUMEHOOD_TEST_OWNER"  // makes this program an owner that waits to be killed
	fileVar  = "FUMEHOOD_TEST_REAPED" // file in which the owner's reaper records its jobs
)

// TestMain runs the tests, or an owner, or its reaper.
func TestMain(m *testing.M) {
	_, errEarly := Entrust(one, record{})
	Run()
	if os.Getenv(ownerVar) == "" {
		os.Exit(m.Run())
	}
	os.Exit(beOwner(errEarly))
}

// record is a job that records itself.
type record struct {
	Kind   string
	Number int
}

var one, two, three = Kind[record]("one"), Kind[record]("two"), Kind[record]("three")

func (r record) Do(_ context.Context, _, dead owner.ID) error {
	f, err := os.OpenFile(os.Getenv(fileVar), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %d %d\n", r.Kind, r.Number, dead.PID)
	return errors.Join(err, f.Close())
}

// beOwner entrusts three jobs to a reaper, releases one, prints the reaper's PID, and waits for an order. early is the error
// of a job before Run.
func beOwner(early error) int {
	if !errors.Is(early, errNoWait) {
		fmt.Println("a job before Run:", early)
		return 1
	}
	var all []*Trust
	for i, kind := range []string{one, two, three} {
		t, err := Entrust(kind, record{kind, i + 1})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		all = append(all, t)
	}
	first := all[0]
	first.Release()
	fmt.Println("ready")
	for {
		var order string
		if _, err := fmt.Scanln(&order); err != nil {
			return 1
		}
		switch order {
		case "ensure":
			fmt.Println(first.Ensure())
		case "return":
			return 0
		case "release":
			all[1].Release()
			all[2].Release()
			fmt.Println("released")
		}
	}
}

// owning is an owner in a process of its own.
type owning struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   *os.File
	out  *os.File
	file string
}

func newOwner(t *testing.T) *owning {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	o := &owning{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0]), file: filepath.Join(t.TempDir(), "reaped")}
	o.cmd.Env = append(os.Environ(), ownerVar+"=1", fileVar+"="+o.file)
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o.cmd.Stdin, o.cmd.Stdout, o.in, o.out = inR, outW, inW, outR
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = inR.Close(), outW.Close()
	t.Cleanup(func() {
		_ = o.cmd.Process.Kill() // may have ended already
		_ = o.cmd.Wait()
		_, _ = inW.Close(), outR.Close()
	})
	o.says("ready")
	return o
}

func (o *owning) says(want string) {
	o.t.Helper()
	var got string
	if _, err := fmt.Fscanln(o.out, &got); err != nil || got != want {
		o.t.Fatalf("the owner says %q, want %q: %v", got, want, err)
	}
}

func (o *owning) order(text string) {
	o.t.Helper()
	if _, err := fmt.Fprintln(o.in, text); err != nil {
		o.t.Fatal(err)
	}
}

// reaper returns the owner's reaper, or nil if it has none.
func (o *owning) reaper() *os.Process {
	o.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", o.cmd.Process.Pid))
	if err != nil {
		o.t.Fatal(err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // empty for a thread that has ended
		var pid int
		if _, err := fmt.Sscan(string(text), &pid); err == nil {
			p, err := os.FindProcess(pid)
			if err != nil {
				o.t.Fatal(err)
			}
			return p
		}
	}
	return nil
}

// eventually waits until cond is true.
func eventually(t *testing.T, condition string, cond func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("not within 30s: %s", condition)
		}
	}
}

// leftItsJobs waits until the reaper has done its jobs, in any order.
func (o *owning) leftItsJobs() {
	o.t.Helper()
	want := fmt.Sprintf("three 3 %d\ntwo 2 %[1]d\n", o.cmd.Process.Pid)
	var got []byte
	eventually(o.t, "the reaper has done its jobs", func() bool {
		got, _ = os.ReadFile(o.file) // missing before the first job
		return len(got) >= len(want)
	})
	lines := slices.Sorted(strings.Lines(string(got)))
	if all := strings.Join(lines, ""); all != want {
		o.t.Errorf("the reaper did %q, want %q", all, want)
	}
}

func TestReaper_ownerEnds(t *testing.T) {
	for name, end := range map[string]func(o *owning) error{
		"killed":   func(o *owning) error { return o.cmd.Process.Kill() },
		"returned": func(o *owning) error { o.order("return"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t)
			if err := end(o); err != nil {
				t.Fatal(err)
			}
			o.leftItsJobs()
		})
	}
}

func TestTrust_Ensure(t *testing.T) {
	o := newOwner(t)
	first := o.reaper()
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	var second *os.Process
	eventually(t, "another reaper", func() bool {
		o.order("ensure")
		o.says("<nil>")
		second = o.reaper()
		return second != nil && second.Pid != first.Pid
	})
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	o.leftItsJobs()
}

func TestTrust_Release(t *testing.T) {
	o := newOwner(t)
	if o.reaper() == nil {
		t.Fatal("no reaper")
	}
	o.order("release")
	o.says("released")
	if r := o.reaper(); r != nil {
		t.Errorf("reaper %d is still running", r.Pid)
	}
	if _, err := os.Stat(o.file); err == nil {
		t.Error("the reaper did a job that was released")
	}
}

func TestListen_tornMessage(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		`["a"]`:                    `"a"`,
		`["b"] ["b","a"]`:          `"b" "a"`,
		`["a"] []`:                 "",
		`["a","b"] ["b`:            `"a" "b"`,
		`["a"] garbage []`:         `"a"`,
		`["a"] {"id":1} ["a","b"]`: `"a"`,
	} {
		var got []string
		tasks := strings.NewReplacer(`"a"`, `{"job":"a"}`, `"b"`, `{"job":"b"}`).Replace(text)
		for _, t := range listen(strings.NewReader(tasks)) {
			got = append(got, string(t.Job))
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%s: left %s, want %s", text, all, want)
		}
	}
}

// A program that is started with the variable by mistake runs normally.
func TestWait_variableInvalid(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestListen")
	cmd.Env = append(os.Environ(), variable+"=yes")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
	if id, err := owner.Self(); err != nil || id.PID != os.Getpid() {
		t.Error(id, err)
	}
}
