//go:build unix

package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/test/tier"
)

func TestEval_killed(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	const kills = 3
	samples := tier.Pick(t, 8, 8, 200)
	first, dir := program(t, "eval", "task.yaml")
	text := "name: killed\nenvironment: {image: fumehood-test/busybox}\nsamples:\n"
	for i := range samples {
		text += fmt.Sprintf("  - {id: s%d, command: 'echo I am %d; exit %d'}\n", i, i, i%3)
	}
	if err := os.WriteFile(filepath.Join(dir, "task.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() (only runs.Entry) { // zero if no run exists yet
		all, err := runs.List(filepath.Join(dir, "fumehood-runs"))
		if err != nil || len(all) > 1 {
			t.Fatalf("%d runs, %v", len(all), err)
		}
		if len(all) == 1 {
			only = all[0]
		}
		return only
	}
	resumed := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "fumehood", "eval", "task.yaml", "--resume", run().Dir())
		cmd.Env, cmd.Dir = first.Env, dir
		return cmd
	}
	cmd := first
	for i := range kills {
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		enough := i*samples/(kills+1) + 1 + rand.IntN(samples/(kills+1))
		for n := run().Recorded + 1; n <= enough; n++ {
			eventually(t, fmt.Sprintf("result %d", n), func() bool { return run().Recorded >= n })
		}
		<-time.After(rand.N(500 * time.Millisecond))
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		t.Logf("killed with %d of %d results", run().Recorded, samples)
		eventually(t, "the reaper has removed all", func() bool {
			objects, err := objectsOf(t.Context(), e, dir)
			if err != nil {
				t.Fatal(err)
			}
			return len(objects) == 0
		})
		cmd = resumed()
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := map[string]bool{}
	for res, err := range run().Results() {
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(strings.TrimPrefix(res.Sample, "s"))
		if seen[res.Sample] {
			t.Errorf("two results for sample %s", res.Sample)
		}
		seen[res.Sample] = true
		if res.Error != nil || res.Score.Passed() != (n%3 == 0) || res.Steps[0].ExitCode != n%3 || res.Steps[0].Stdout.Text() != fmt.Sprintf("I am %d\n", n) {
			t.Errorf("got %+v: %v", res, res.Error)
		}
	}
	if len(seen) != samples {
		t.Errorf("got %d results, want %d", len(seen), samples)
	}
}
