// Package eval runs an evaluation: the samples of a task file, each in a sandbox of its own, many at once, and records what
// becomes of each in a folder of its own.
//
//	report, err := eval.Run(ctx, "task.yaml", eval.Options{Open: open})
//	fmt.Println(report.Summary.Passed, report.Summary.Failed)
//
// docs/eval.md says what a task file has, docs/runs.md what a run's folder has. Errors are *fumehood.Error, alone or joined, but for
// those of the functions in Options.
package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/runs"
	"github.com/fumehood/fumehood/spec"
	"github.com/fumehood/fumehood/task"
	"github.com/fumehood/fumehood/taskfile"
)

// DefaultRuns is the folder of runs where Options don't say, in the working directory.
const DefaultRuns = "fumehood-runs"

// ErrNoSample is in the error of an id that no sample of the task has.
var ErrNoSample = errors.New("the task has no such sample")

// Options say how Run runs a task file. Open is needed; the other fields' zero values work.
type Options struct {
	// Open returns the provider of the sandboxes. It is called once, with the name that the task asks for: "docker", or
	// "local", which isolates nothing, and is an ErrConfig without AllowLocal. Run closes the provider.
	Open func(ctx context.Context, provider string) (fumehood.Provider, error)
	// AllowLocal lets the task run commands on this machine, without isolation.
	AllowLocal bool
	// AllowRead are paths outside the task's folder that its files may read or mount. AllowUnsafe allows, and logs, what
	// breaks the isolation of sandboxes.
	AllowRead   []string
	AllowUnsafe bool

	// Runs is the folder in which the run's own folder is made. Empty means DefaultRuns. Nothing in it is in an image's context;
	// where the task itself lies in it, no folder of a run is.
	Runs string
	// Resume is the folder of a run to go on with: of the same task, and the same samples. What has a score there keeps it.
	// Empty begins a new run.
	Resume string

	// Samples are the ids of those that are run. Nil means all. Limit is how many at most, in the order of the task; 0
	// means no limit.
	Samples []string
	Limit   int
	// Epochs is how often each sample is attempted. 0 means as the task says.
	Epochs int
	// MaxSandboxes, MaxStarting, Shuffle and FailFast are those of task.RunOptions.
	MaxSandboxes, MaxStarting int
	Shuffle                   *uint64
	FailFast                  bool
	// Keep leaves all sandboxes in place. Report.Kept lists them.
	Keep bool

	// Building is told each step of a build, before the first attempt.
	Building func(image, step string)
	// Began is told the run when it is there, before its first attempt. It may look at the run's folder. An error ends Run.
	Began func(*runs.Folder) error
	// Progress is that of task.RunOptions.
	Progress func(task.Progress)
	// Recorded is told each result once it is in the run's folder, in the order in which attempts end. An error ends Run.
	Recorded func(*task.SampleResult) error
	// Ended is told the report when all attempts have ended, before the provider is closed. Where the run's folder could not be
	// completed, which is an error of Run's, the report has no summary. Its error is returned. It may be nil.
	Ended func(*Report) error
	// Logger logs what the user should know of: what is loosened, attempts that are made again. Nil logs nothing.
	Logger *slog.Logger
}

// Report is what has become of a run.
type Report struct {
	// Dir is the run's folder; empty where none was made, or nothing was recorded in it, which removes a new one.
	Dir string
	// Summary is that of all that the folder holds, earlier parts of the run too.
	Summary runs.Summary
	// Kept are the sandboxes that were left in place, by Options.Keep.
	Kept []task.Kept
}

// Run runs the samples of a task file; a folder stands for the task.yaml in it. It returns when all attempts have ended. One
// that has no score, because Fumehood failed, is no error of Run's: the summary counts it. Where ctx ends, or something
// fails, the sandboxes are removed, and the report has what was recorded until then.
func Run(ctx context.Context, file string, opts Options) (_ Report, err error) {
	if opts.Open == nil {
		return Report{}, &fumehood.Error{Op: "run task", Path: file, Class: fumehood.ErrConfig, Err: errors.New("Options.Open is needed")}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Runs == "" {
		opts.Runs = DefaultRuns
	}
	f, err := read(file, opts)
	if err != nil {
		return Report{}, err
	}
	p, err := opts.Open(ctx, f.Provider())
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	dir := opts.Resume
	if dir == "" {
		dir = filepath.Join(opts.Runs, runs.NewName(f.Name, time.Now()))
	}
	hidden, err := hiddenRuns(f, opts.Runs, dir)
	if err != nil {
		return Report{}, err
	}
	what, how, err := f.Task(ctx, p, taskfile.TaskOptions{Exclude: hidden, Progress: opts.Building})
	if err != nil {
		return Report{}, err
	}
	what.Samples = choose(what.Samples, opts.Samples, opts.Limit)
	how.MaxSandboxes, how.MaxStarting, how.Shuffle, how.FailFast = opts.MaxSandboxes, opts.MaxStarting, opts.Shuffle, opts.FailFast
	if opts.Epochs > 0 {
		how.Epochs = opts.Epochs
	}
	resolved, err := f.Resolved()
	if err != nil {
		return Report{}, err
	}
	r, err := open(dir, opts.Resume != "", runs.About{Task: what.Name, Attempts: len(what.Samples) * max(how.Epochs, 1)}, resolved)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return attempt(ctx, what, how, r, opts)
}

// attempt makes the attempts of a run, and records them.
func attempt(ctx context.Context, what task.Options, how task.RunOptions, r *runs.Run, opts Options) (Report, error) {
	report := Report{Dir: r.Dir()}
	what.Logger, what.Journal = opts.Logger, r.Journal
	what.Keep, what.Kept = opts.Keep, func(all []task.Kept) { report.Kept = all }
	what.Removed = func(rm task.Removal) {
		if rm.Err != nil {
			opts.Logger.Warn("a sandbox could not be removed, which is tried once more at the end", "sandbox", rm.Sandbox.Name, "error", rm.Err)
		}
	}
	how.Done, how.Progress = r.Done(), opts.Progress
	var failed, err error
	if opts.Began != nil {
		failed = opts.Began(r.Folder)
	}
	if failed == nil {
		failed = record(task.Run(ctx, what, how), r, opts.Recorded)
	}
	if report.Summary, err = r.Finish(); err == nil && failed != nil && report.Summary.Recorded == 0 && opts.Resume == "" {
		report.Dir, err = "", r.Discard() // there is nothing to go on with
	}
	if opts.Ended != nil {
		err = errors.Join(err, opts.Ended(&report))
	}
	return report, errors.Join(failed, err)
}

// record records results as they come, and tells of them. Where it cannot, it ends the run.
func record(results iter.Seq2[task.SampleResult, error], r *runs.Run, recorded func(*task.SampleResult) error) error {
	for res, err := range results {
		if err == nil {
			err = r.Append(res)
		}
		if err == nil && recorded != nil {
			err = recorded(&res)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads a task file, and checks what the options say about it.
func read(file string, opts Options) (*taskfile.File, error) {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		gate, err := hostpath.NewGate("the folder that was named", file, opts.AllowRead...)
		file = filepath.Join(file, "task.yaml")
		if err == nil {
			err = gate.Check(file)
		}
		if err != nil {
			return nil, &fumehood.Error{Op: "read task", Path: file, Class: fumehood.ErrConfig, Err: err}
		}
	}
	f, err := taskfile.Read(file, taskfile.ReadOptions{AllowRead: opts.AllowRead, AllowUnsafe: opts.AllowUnsafe, Logger: opts.Logger})
	if err != nil {
		return nil, err
	}
	for _, id := range opts.Samples {
		if !slices.ContainsFunc(f.Samples, func(s *taskfile.Sample) bool { return s.ID == id }) {
			return nil, &fumehood.Error{Op: "run task", Path: f.File, Class: fumehood.ErrConfig, Err: fmt.Errorf("%w: %q", ErrNoSample, id)}
		}
	}
	return f, spec.CheckType(f.File, f.Provider(), opts.AllowLocal)
}

// hiddenRuns are the folders of runs that no image may have: those in the task's folder, that of this run, and all of dir,
// where new ones go; where the task lies in dir, the runs in it.
func hiddenRuns(f *taskfile.File, dir, run string) ([]string, error) {
	if f.Provider() == spec.TypeLocal { // which builds none
		return nil, nil
	}
	folder := filepath.Dir(f.File)
	if hostpath.Contains(dir, folder) {
		hidden, err := runs.Below(dir)
		return append(hidden, run), err
	}
	hidden, err := runs.Below(folder)
	return append(hidden, dir, run), err
}

// choose returns the samples with the ids, or all, in the order of the task, but at most so many; 0 means all.
func choose(all []task.Sample, ids []string, limit int) []task.Sample {
	var chosen []task.Sample
	for _, s := range all {
		if ids == nil || slices.Contains(ids, s.ID) {
			chosen = append(chosen, s)
		}
	}
	if limit > 0 && limit < len(chosen) {
		chosen = chosen[:limit]
	}
	return chosen
}

// open makes the folder of a new run, or goes on with one, which has to be of the same task and the same samples.
func open(dir string, resume bool, about runs.About, resolved []byte) (*runs.Run, error) {
	if !resume {
		return runs.Create(dir, about, resolved)
	}
	r, err := runs.Open(dir)
	if err != nil {
		return nil, err
	}
	was, err := r.Task()
	switch {
	case err != nil:
	case !bytes.Equal(was, resolved):
		err = &fumehood.Error{
			Op: "resume", Path: r.Dir(), Class: fumehood.ErrConfig, Err: errors.New("the task is not what it was when the run began"),
			Hint: "begin a new run, for scores of two tasks do not go together",
		}
	case r.About().Attempts != about.Attempts:
		err = &fumehood.Error{
			Op: "resume", Path: r.Dir(), Class: fumehood.ErrConfig, Err: fmt.Errorf("the run is one of %d attempts, and not of %d", r.About().Attempts, about.Attempts),
			Hint: "give the --sample, --limit and --epochs with which it began",
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
