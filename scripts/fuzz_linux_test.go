// Package scripts_test tests the project's scripts as make and CI run them.
package scripts_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/guest/files"
)

// outOfTime is the output of a target that only reaches the end of its time, as go1.26.8 may print it.
const outOfTime = `fuzz: elapsed: 10s, execs: 246651 (26070/sec), new interesting: 104 (total: 646)
--- FAIL: FuzzIt (10.16s)
    context deadline exceeded
FAIL
exit status 1
FAIL	example.com/fuzzed	10.186s
`

// TestFuzz_outOfTime replaces go by a stub, because the toolchain's race cannot be triggered reliably.
func TestFuzz_outOfTime(t *testing.T) {
	for name, run := range map[string]struct {
		says   string
		writes bool // an input, into testdata/fuzz
		code   string
		passes bool
	}{
		"nothing is found":          {says: "PASS\nok  \texample.com/fuzzed\t10.1s\n", code: "0", passes: true},
		"its time is up":            {says: outOfTime, code: "1", passes: true},
		"its time is up minimizing": {says: outOfTime, writes: true, code: "1"},
		"the target runs out of time": {
			says: strings.Replace(outOfTime, "    context", "    --- FAIL: FuzzIt (0.00s)\n        it_test.go:8: context", 1),
			code: "1",
		},
		"another target's time is up":  {says: strings.Replace(outOfTime, "FuzzIt", "FuzzThat", 1), code: "1"},
		"there is more than that":      {says: outOfTime + "panic: deadlocked!\n", code: "2"},
		"go fails without any message": {code: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			stand := filepath.Join(dir, "go")
			write := ":"
			if run.writes {
				write = "mkdir -p testdata/fuzz/FuzzIt && echo found >testdata/fuzz/FuzzIt/0123abcd"
			}
			writeFile(t, filepath.Join(dir, "said"), run.says)
			writeFile(t, stand, `#!/bin/sh
case "$*" in
list*) echo "$PWD" ;;
*-list*) printf 'FuzzIt\nok  \texample.com/fuzzed\t0.1s\n' ;;
*) cat said; `+write+`; exit `+run.code+` ;;
esac
`)
			out, err := fuzz(t, dir, stand, "10s", "Fuzz", "./...")
			if passed := err == nil; passed != run.passes {
				t.Errorf("fuzz passes: %v, want %v: %v\n%s", passed, run.passes, err, out)
			}
			if !strings.Contains(out, strings.TrimSpace(run.says)) {
				t.Errorf("the output of go is missing:\n%s", out)
			}
			if excused := strings.Contains(out, "75804"); excused != (run.passes && run.code != "0") {
				t.Errorf("excuse reported: %v, want it only for a failed run that passes\n%s", excused, out)
			}
		})
	}
}

func TestFuzz_finding(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/fuzzed\n\ngo 1.26\n")
	writeFile(t, filepath.Join(dir, "it_test.go"), `package fuzzed

import "testing"

func FuzzIt(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, n int) {
		if n != 1 {
			t.Fatal("context deadline exceeded")
		}
	})
}
`)
	out, err := fuzz(t, dir, "go", "100000x", "Fuzz", "./...")
	if err == nil || !strings.Contains(out, "Failing input written to testdata/fuzz/FuzzIt/") {
		t.Errorf("fuzz: %v, want a failing input\n%s", err, out)
	}
}

func TestFuzz_noTarget(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/fuzzed\n\ngo 1.26\n")
	writeFile(t, filepath.Join(dir, "it_test.go"), "package fuzzed\n")
	if out, err := fuzz(t, dir, "go", "10x", "FuzzOther", "./..."); err == nil {
		t.Errorf("fuzz passes without a target of this name:\n%s", out)
	}
}

// fuzz runs the script in dir and returns its output.
func fuzz(t *testing.T, dir, goProgram string, args ...string) (string, error) {
	t.Helper()
	script, err := filepath.Abs("fuzz")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GO="+goProgram, "PWD="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := files.WriteProgram(name, []byte(content), 0o755); err != nil { //nolint:gosec // a program, in a folder of the test's own
		t.Fatal(err)
	}
}
