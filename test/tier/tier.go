// Package tier decides how much the tests do and what they may skip. FUMEHOOD_TIER names the tier: quick, ci or all.
// `make test`, `.ci/run` and `make test-all` set it.
//
// Without FUMEHOOD_TIER the size is quick, and a test skips when the machine lacks what it needs. With it, a missing
// prerequisite of that tier fails the test. `go test -short` (`make check`) skips each test that needs a Docker Engine.
package tier

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// Variable is the environment variable that names the tier.
const Variable = "FUMEHOOD_TIER"

// Tier is the size of a test run.
type Tier int

// The tiers, from the smallest.
const (
	Quick Tier = iota // make test
	CI                // .ci/run
	All               // make test-all
)

// Of returns the tier of this run. Any other value of the variable than a tier's name fails t.
func Of(t testing.TB) Tier {
	t.Helper()
	switch name := os.Getenv(Variable); name {
	case "", "quick":
		return Quick
	case "ci":
		return CI
	case "all":
		return All
	default:
		t.Fatalf("%s=%q: want quick, ci or all", Variable, name)
		return Quick
	}
}

// Pick returns the value for the tier of this run: rounds, samples, seconds.
func Pick[T any](t testing.TB, quick, ci, all T) T {
	t.Helper()
	return [...]T{Quick: quick, CI: ci, All: all}[Of(t)]
}

// Need skips t in tiers below the one given.
func Need(t testing.TB, from Tier) {
	t.Helper()
	if Of(t) < from {
		t.Skipf("runs with %s=%s and above", Variable, from)
	}
}

// String returns the tier's name, as in the environment variable.
func (tier Tier) String() string { return [...]string{"quick", "ci", "all"}[tier] }

// NeedDocker skips t with -short, which runs only tests that need no Docker Engine. With -failfast it also skips t
// after another test that needs Docker has failed: the flag itself does not stop parallel tests.
func NeedDocker(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Docker Engine; -short runs the other tests")
	}
	if f := flag.Lookup("test.failfast"); f == nil || f.Value.String() != "true" {
		return
	}
	if failed.Load() {
		t.Skip("another test has failed")
	}
	t.Cleanup(func() {
		if t.Failed() {
			failed.Store(true)
		}
	})
}

// failed reports whether a test that needs Docker has failed, with -failfast.
var failed atomic.Bool

// Missing fails or skips t because of a missing prerequisite, which err names. It fails t if FUMEHOOD_TIER is set to
// the given tier or above, and skips it otherwise.
func Missing(t testing.TB, from Tier, err error) {
	t.Helper()
	if os.Getenv(Variable) != "" && Of(t) >= from {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Program returns the path of a program that only some machines have. Without it, t ends as with Missing. What runs
// the program may be the code under test.
func Program(t testing.TB, from Tier, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, from, err)
	}
	return path
}

// Again runs cmd, which runs t once more in another process with -test.v, and ends t as it ended there.
func Again(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err == nil && strings.Contains(text, "--- SKIP: "+t.Name()+" ("):
		t.Skip(text)
	case err != nil || !strings.Contains(text, "--- PASS: "+t.Name()+" ("):
		t.Errorf("%v: %s", err, text)
	}
}
