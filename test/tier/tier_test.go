package tier_test

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/test/tier"
)

// recorder is a testing.TB that records how it ends.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.ended = "error: " + fmt.Sprintf(format, args...)
}

func (r *recorder) end(how string, args ...any) {
	r.ended = how + ": " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any)                 { r.end("failed", args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.end("failed", fmt.Sprintf(format, args...)) }
func (r *recorder) Skip(args ...any)                  { r.end("skipped", args...) }
func (r *recorder) Skipf(format string, args ...any)  { r.end("skipped", fmt.Sprintf(format, args...)) }

// ended runs f with a recorder and returns how it ended, "" if it did not.
func ended(t testing.TB, f func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.ended
}

func TestPick(t *testing.T) {
	for value, want := range map[string]int{"": 1, "quick": 1, "ci": 2, "all": 3} {
		t.Setenv(tier.Variable, value)
		if got := tier.Pick(t, 1, 2, 3); got != want {
			t.Errorf("%q: got %d, want %d", value, got, want)
		}
	}
	t.Setenv(tier.Variable, "huge")
	want := `failed: ` + tier.Variable + `="huge": want quick, ci or all`
	if got := ended(t, func(t testing.TB) { tier.Pick(t, 1, 2, 3) }); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNeed(t *testing.T) {
	for value, want := range map[string]string{"": "skipped", "quick": "skipped", "ci": "", "all": ""} {
		t.Setenv(tier.Variable, value)
		got := ended(t, func(t testing.TB) { tier.Need(t, tier.CI) })
		if want != "" {
			want += ": runs with " + tier.Variable + "=ci and above"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestMissing(t *testing.T) {
	for value, want := range map[string][2]string{
		"": {"skipped", "skipped"}, "quick": {"failed", "skipped"}, "ci": {"failed", "failed"}, "all": {"failed", "failed"},
	} {
		t.Setenv(tier.Variable, value)
		for i, from := range []tier.Tier{tier.Quick, tier.CI} {
			got := ended(t, func(t testing.TB) { tier.Missing(t, from, errors.New("no such program")) })
			if got != want[i]+": no such program" {
				t.Errorf("%q, from %v: got %q, want %q", value, from, got, want[i])
			}
		}
	}
}

func TestProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for value, want := range map[string]string{"quick": "skipped", "ci": "failed"} {
		t.Setenv(tier.Variable, value)
		got := ended(t, func(t testing.TB) { tier.Program(t, tier.CI, "helper") })
		if !strings.HasPrefix(got, want+`: exec: "helper"`) {
			t.Errorf("%q: got %q", value, got)
		}
	}
}

func TestAgain(t *testing.T) {
	for script, want := range map[string]string{
		`echo "--- PASS: TestAgain (0.00s)"`:                                           "",
		`echo "    --- SKIP: TestAgain/part (0.00s)"; echo "--- PASS: TestAgain (0s)"`: "",
		`echo "no helper"; echo "--- SKIP: TestAgain (0.00s)"`:                         "skipped: no helper\n--- SKIP: TestAgain (0.00s)\n",
		`echo "--- SKIP: TestAgain (0.00s)"; exit 1`:                                   "error: exit status 1: --- SKIP: TestAgain (0.00s)\n",
		`echo "no tests to run"`:                                                       "error: <nil>: no tests to run\n",
	} {
		if got := ended(t, func(t testing.TB) { tier.Again(t, exec.CommandContext(t.Context(), "sh", "-c", script)) }); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
}
