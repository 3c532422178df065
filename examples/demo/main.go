// Command demo judges programs of strangers. Each one runs in a fresh sandbox of its own, several at
// once, gets the task on its standard input and is told by what it prints whether it has solved it.
// Most of the programs do something else: see the folder examples/submissions.
//
//	go run ./examples/demo [-dir examples/submissions] [-image lazaret-test/python] [-parallel 4] [-json]
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/provider/docker"
)

func main() {
	dir := flag.String("dir", "examples/submissions", "folder with the programs, input.txt and expected.txt")
	image := flag.String("image", "lazaret-test/python", "image that the programs run in")
	parallel := flag.Int("parallel", 2*runtime.NumCPU(), "how many sandboxes run at once")
	asJSON := flag.Bool("json", false, "print one line of JSON a program instead of the table")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the clean-up
	err := run(ctx, *dir, *image, *parallel, *asJSON)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// judge runs programs and compares what they print with what is expected.
type judge struct {
	provider        *docker.Provider
	dir, image      string
	input, expected []byte
	run             string // what the names of this run's sandboxes begin with
	sandboxes       atomic.Int64
}

func run(ctx context.Context, dir, image string, parallel int, asJSON bool) (err error) {
	j := &judge{dir: dir, image: image, run: "demo-" + strings.ToLower(rand.Text()[:8])}
	if j.input, err = os.ReadFile(filepath.Join(dir, "input.txt")); err != nil {
		return err
	}
	if j.expected, err = os.ReadFile(filepath.Join(dir, "expected.txt")); err != nil {
		return err
	}
	programs, err := submissions(dir)
	if err != nil {
		return err
	}
	if j.provider, err = docker.New(ctx, docker.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.provider.Close(ctx)) }()

	begin := time.Now()
	out := newTable(os.Stdout, programs, asJSON)
	var failures []error
	for _, verdict := range j.all(ctx, programs, max(parallel, 1)) {
		v := <-verdict
		out.row(v)
		if v.err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", v.Program, v.err))
		}
	}
	left, err := j.leftovers(ctx)
	if err != nil {
		return fmt.Errorf("look for what was left behind: %w", err)
	}
	out.end(len(programs), j.sandboxes.Load(), time.Since(begin), left)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(left) > 0:
		return errors.New("something was left behind")
	case failures != nil:
		return fmt.Errorf("%d programs could not be judged, the first: %w", len(failures), failures[0])
	}
	return nil
}

// submissions lists the programs of a folder: every file but the texts.
func submissions(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".txt"
	})
	if len(entries) == 0 {
		return nil, fmt.Errorf("no programs in %s", dir)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// all judges the programs, so many at once, in their order. Each channel gets one verdict.
func (j *judge) all(ctx context.Context, programs []string, parallel int) []chan verdict {
	todo := make(chan int, len(programs))
	verdicts := make([]chan verdict, len(programs))
	for i := range programs {
		verdicts[i] = make(chan verdict, 1)
		todo <- i
	}
	close(todo)
	for range parallel {
		go func() { // ends with its last verdict, which is waited for
			for i := range todo {
				res, err := j.try(ctx, fmt.Sprintf("%s-%02d", j.run, i), programs[i])
				verdicts[i] <- j.verdict(programs[i], res, err)
			}
		}()
	}
	return verdicts
}

// try runs one program in a sandbox of its own.
func (j *judge) try(ctx context.Context, name, program string) (res *lazaret.Result, err error) {
	code, err := os.ReadFile(filepath.Join(j.dir, program))
	if err != nil {
		return nil, err
	}
	sb, err := j.provider.Start(ctx, lazaret.Spec{
		Name:   name,
		Image:  j.image,
		Limits: lazaret.Limits{Memory: 256 << 20, CPUs: 1, PIDs: 64}, // and no network: that is the default
	})
	if err != nil {
		return nil, err
	}
	j.sandboxes.Add(1)
	defer func() { err = errors.Join(err, sb.Close(ctx)) }() // whatever still runs in it ends here

	path := "/submission/" + program
	if err := sb.WriteFile(ctx, path, code, lazaret.WriteOptions{Mode: 0o755}); err != nil {
		return nil, err
	}
	return sb.Exec(ctx, lazaret.Cmd{
		Args:      []string{path},
		Dir:       "/submission",
		Stdin:     bytes.NewReader(j.input),
		Wall:      3 * time.Second,
		StdoutCap: 64 << 10,
		StderrCap: 64 << 10,
	})
}

// failure is the verdict on ourselves: the program was not judged.
const failure = "error"

// verdict says what to think of a program. That the program has failed is in res; err says that we have,
// except where the program could not even be started, which is its author's fault.
func (j *judge) verdict(program string, res *lazaret.Result, err error) verdict {
	v := verdict{Program: program, ExitCode: -1}
	switch {
	case errors.Is(err, lazaret.ErrNotStarted):
		v.Outcome, v.Verdict, v.LastLine = "not started", "runtime error", err.Error()
		return v
	case err != nil:
		v.Verdict, v.LastLine, v.err = failure, err.Error(), err
		return v
	}
	v.Outcome, v.ExitCode, v.Seconds = outcome(res), res.ExitCode, res.Wall.Seconds()
	v.Output, v.Cut = res.Stdout.Total+res.Stderr.Total, res.Stdout.Truncated() || res.Stderr.Truncated()
	if v.LastLine = lastLine(res.Stderr.Bytes); v.LastLine == "" {
		v.LastLine = lastLine(res.Stdout.Bytes)
	}
	switch {
	case res.Outcome == lazaret.TimedOut:
		v.Verdict = "time limit"
	case res.Outcome == lazaret.OutOfMemory:
		v.Verdict = "memory limit"
	case res.Outcome == lazaret.Lost:
		v.Verdict, v.LastLine = "lost", res.Why // what it would have answered is not known
	case !res.Success():
		v.Verdict = "runtime error"
	case v.Cut:
		v.Verdict = "output limit"
	case bytes.Equal(bytes.TrimSpace(res.Stdout.Bytes), bytes.TrimSpace(j.expected)):
		v.Verdict = "accepted"
	default:
		v.Verdict = "wrong answer"
	}
	return v
}

// leftovers lists what the daemon still has of this run's sandboxes. It looks after a Ctrl-C as well.
func (j *judge) leftovers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	all, err := j.provider.Cleanup(ctx, lazaret.CleanupOptions{DryRun: true})
	var left []string
	for _, l := range all {
		if strings.HasPrefix(l.Sandbox, j.run) {
			left = append(left, l.Kind+" "+l.Name)
		}
	}
	return left, err
}
