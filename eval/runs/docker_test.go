package runs_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/fumehood/fumehood/internal/owner/reaper/early"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// goesOn names the run that this process resumes, instead of running tests.
const goesOn = "FUMEHOOD_TEST_RUN"

func TestMain(m *testing.M) {
	docker.RunReaper()
	if dir := os.Getenv(goesOn); dir != "" {
		if err := goOn(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// goOn runs the missing attempts of a run. It writes a byte before and after each result is recorded.
func goOn(ctx context.Context, dir string) error {
	r, err := runs.Open(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := docker.New(ctx, docker.Options{NoSweep: true})
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	opts, how := tiny(r.About().Task, r.About().Attempts)
	opts.Provider, opts.Journal, how.Done = p, r.Journal, r.Done()
	for res, err := range task.Run(ctx, opts, how) {
		if err != nil {
			return err
		}
		os.Stdout.Write([]byte{'.'})
		if err := r.Append(res); err != nil {
			return err
		}
		os.Stdout.Write([]byte{'.'})
	}
	_, err = r.Finish()
	return err
}

// tiny is a task whose samples run one short command each. Every third sample fails.
func tiny(name string, samples int) (task.Options, task.RunOptions) {
	opts := task.Options{Name: name, Spec: fumehood.Spec{Image: "fumehood-test/busybox", Limits: fumehood.Limits{Memory: 64 << 20}}}
	for i := range samples {
		opts.Samples = append(opts.Samples, task.Sample{ID: strconv.Itoa(i)})
	}
	return opts, task.RunOptions{Solve: func(ctx context.Context, a *task.Attempt) error {
		n, err := strconv.Atoi(a.Sample.ID)
		if err != nil {
			return err
		}
		cmd := fumehood.Cmd{Args: []string{"sh", "-c", `echo "I am $0"; exit $1`, a.Sample.ID, strconv.Itoa(n % 3)}}
		res, err := a.Sandbox.Exec(ctx, cmd)
		if err == nil {
			a.Steps = append(a.Steps, task.Step{Cmd: cmd, Result: res})
		}
		return err
	}}
}

func TestOpen_afterKills(t *testing.T) {
	p, e := dockertest.Provider(t, docker.Options{NoSweep: true}), dockertest.Engine(t)
	ctx := context.WithoutCancel(t.Context())
	name := "run-" + strings.ToLower(rand.Text()[:8])
	// clean removes objects that a killed process left, by the task's label. The process's reaper does the same
	// concurrently.
	clean := func() int {
		t.Helper()
		all := map[string]bool{}
		for {
			objects, err := e.Objects(ctx, owner.LabelUser+task.LabelTask+"="+name)
			if err != nil {
				t.Fatal(err)
			}
			names := map[string]bool{}
			for _, o := range objects {
				names[o.Labels[owner.LabelSandbox]] = true
			}
			if len(names) == 0 {
				return len(all)
			}
			maps.Copy(all, names)
			_, err = p.Cleanup(ctx, provider.CleanupOptions{Names: slices.Collect(maps.Keys(names))})
			if err != nil && !errors.Is(err, fumehood.ErrConfig) { // ErrConfig: a sandbox is already gone
				t.Fatal(err)
			}
		}
	}
	samples := tier.Pick(t, 12, 12, 200)
	dir := filepath.Join(t.TempDir(), "run")
	r, err := runs.Create(dir, runs.About{Task: name, Attempts: samples}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clean() })

	const kills = 3
	for range kills {
		part := 2 * samples / (kills + 1) // of the bytes that a complete run writes
		writeSome(t, dir, 1+mathrand.IntN(part))
		t.Logf("killed with %d results, %d sandboxes left", recorded(t, dir), clean())
	}
	if got := recorded(t, dir); got >= samples {
		t.Errorf("all %d results were there after the last kill", got)
	}
	writeSome(t, dir, 0)

	f, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for res, err := range f.Results() {
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(res.Sample)
		if seen[res.Sample] {
			t.Errorf("duplicate result of sample %s", res.Sample)
		}
		seen[res.Sample] = true
		if res.Error != nil || res.Score == nil || res.Score.Passed() != (n%3 == 0) || len(res.Steps) != 1 || res.Steps[0].ExitCode != n%3 || res.Steps[0].Stdout.Text() != "I am "+res.Sample+"\n" {
			t.Errorf("got %+v: %v", res, res.Error)
		}
		journal, err := os.ReadFile(filepath.Join(dir, "journals", res.Sandbox+".jsonl"))
		if err != nil || !bytes.Contains(journal, []byte(`"kind":"command"`)) || !bytes.Contains(journal, []byte(fmt.Sprintf(`"sample":%q`, res.Sample))) {
			t.Errorf("the journal of sample %s: %s, %v", res.Sample, journal, err)
		}
	}
	s, err := f.Summary()
	if err != nil || len(seen) != samples || s.Recorded != samples || s.Passed != (samples+2)/3 || s.Outcomes["exited"] != samples {
		t.Errorf("%d results, %+v, %v", len(seen), s, err)
	}
	t.Logf("%+v", s)
	if n := clean(); n > 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// recorded returns the number of results of a run.
func recorded(t *testing.T, dir string) int {
	t.Helper()
	f, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Summary()
	if err != nil {
		t.Fatal(err)
	}
	return s.Recorded
}

// writeSome starts a process that resumes a run, and kills it when it has written that many bytes; 0 lets it
// finish.
func writeSome(t *testing.T, dir string, most int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), goesOn+"="+dir)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	for n := 0; ; {
		if _, err := in.ReadByte(); err != nil {
			break
		}
		if n++; n == most {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			break
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case most == 0 && err != nil:
		t.Fatalf("the run: %v\n%s", err, &complaints)
	case most > 0 && (!errors.As(err, &exit) || exit.Exited()):
		t.Fatalf("the process was not killed: %v\n%s", err, &complaints)
	}
}
