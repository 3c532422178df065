// Package eval runs an evaluation: the samples of a task file, many at once, each in its own sandbox. It records
// the results in a folder.
//
//	report, err := eval.Run(ctx, "task.yaml", eval.Options{Open: open})
//	fmt.Println(report.Summary.Passed, report.Summary.Failed)
//
// docs/eval.md describes task files, docs/runs.md describes the folder of a run. Errors are *fumehood.Error, single
// or joined, except those returned by functions in Options.
package eval

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/taskfile"
	"github.com/fumehood/fumehood/session/spec"
)

// DefaultRuns is the default folder for runs, in the working directory.
const DefaultRuns = "fumehood-runs"

// ErrNoSample is wrapped by the error for an ID that no sample of the task has.
var ErrNoSample = errors.New("the task has no such sample")

// Options are the options of Run. Open is required; the other fields may be zero.
type Options struct {
	// Open returns the provider of the sandboxes. It is called once, with the provider that the task names:
	// "docker", "native" or "local". The local provider isolates nothing, and is an ErrConfig without AllowLocal. Run closes
	// the provider.
	Open func(ctx context.Context, provider string) (fumehood.Provider, error)
	// AllowLocal allows the task to run commands on this machine without isolation.
	AllowLocal bool
	// AllowRead lists paths outside the task's folder that its files may read or mount. AllowUnsafe allows, and
	// logs, settings that break the isolation of sandboxes.
	AllowRead   []string
	AllowUnsafe bool

	// Runs is the folder in which the folder of the run is created. Empty means DefaultRuns. Its contents are
	// excluded from the contexts of image builds. If the task's folder is inside Runs, only the folders of runs are
	// excluded.
	Runs string
	// Dir is the folder of a new run, in place of a new one in Runs. It may have the folder runs.SourceOf with the task's
	// files. Empty means a new folder.
	Dir string
	// Resume is the folder of a run to resume, with the same task and the same samples. Recorded attempts are not
	// made again, except canceled ones and those that Repeat returns true for. Empty starts a new run.
	Resume string
	// Repeat reports whether a resumed run makes a recorded attempt again, and drops its result. Nil repeats
	// attempts with an error of class task.Infra.
	Repeat func(*task.SampleResult) bool

	// Samples are the IDs of the samples to run. Nil means all. Limit is the maximum number of samples, in the
	// order of the task; 0 means no limit.
	Samples []string
	Limit   int
	// Epochs is how often each sample is attempted. 0 means the value in the task file.
	Epochs int
	// MaxSandboxes, MaxStarting, Retries, Shuffle and FailFast are as in task.RunOptions.
	MaxSandboxes, MaxStarting, Retries int
	Shuffle                            *uint64
	FailFast                           bool
	// Keep leaves all sandboxes in place. Report.Kept lists them.
	Keep bool

	// Building is called with each step of an image build, before the first attempt.
	Building func(image, step string)
	// Began is called once the run's folder exists, before the first attempt. It may read the folder. An error ends
	// Run.
	Began func(*runs.Folder) error
	// Progress is as in task.RunOptions.
	Progress func(task.Progress)
	// Recorded is called with each result after it is stored in the run's folder, in the order in which attempts
	// end. An error ends Run.
	Recorded func(*task.SampleResult) error
	// Ended is called with the report when all attempts have ended, before the provider is closed. If the run's
	// folder could not be completed, Run returns that error and the report has no summary. Run returns the error of
	// Ended too. Ended may be nil.
	Ended func(*Report) error
	// Logger logs what the user should know: settings that weaken isolation, retried attempts. Nil disables
	// logging.
	Logger *slog.Logger
}

// Report describes a run.
type Report struct {
	// Dir is the run's folder. It is empty if none was created, or if a new one was removed because it had no
	// results.
	Dir string
	// Summary covers all results in the folder, including those before a resume.
	Summary runs.Summary
	// Kept lists the sandboxes left in place by Options.Keep.
	Kept []task.Kept
}

// Run runs the samples of a task file. If file is a folder, the task.yaml in it is used. Run returns when all
// attempts have ended. An attempt without a score, because of an infrastructure failure, is not an error of Run;
// the summary counts it. If ctx ends or Run fails, the sandboxes are removed, and the report covers the results
// recorded so far.
func Run(ctx context.Context, file string, opts Options) (_ Report, err error) {
	if opts.Open == nil {
		return Report{}, &fumehood.Error{Op: "run task", Path: file, Class: fumehood.ErrConfig, Err: errors.New("Options.Open is not set")}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Runs == "" {
		opts.Runs = DefaultRuns
	}
	f, err := readTask(file, opts)
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
		dir = cmp.Or(opts.Dir, filepath.Join(opts.Runs, runs.NewName(f.Name, time.Now())))
	}
	hidden, err := hiddenRuns(f, opts.Runs, dir)
	if err != nil {
		return Report{}, err
	}
	taskOpts, runOpts, err := f.Task(ctx, p, taskfile.TaskOptions{Exclude: hidden, Progress: opts.Building})
	if err != nil {
		return Report{}, err
	}
	taskOpts.Samples = choose(taskOpts.Samples, opts.Samples, opts.Limit)
	runOpts.MaxSandboxes, runOpts.MaxStarting, runOpts.Retries = opts.MaxSandboxes, opts.MaxStarting, opts.Retries
	runOpts.Shuffle, runOpts.FailFast = opts.Shuffle, opts.FailFast
	if opts.Epochs > 0 {
		runOpts.Epochs = opts.Epochs
	}
	resolved, err := f.Resolved()
	if err != nil {
		return Report{}, err
	}
	about := runs.About{Task: taskOpts.Name, Attempts: len(taskOpts.Samples) * max(runOpts.Epochs, 1)}
	recordSource(&about, f.File, dir, opts)
	r, err := openRun(dir, opts, about, resolved)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return attempt(ctx, taskOpts, runOpts, r, opts)
}

// recordSource records how a new run in dir is resumed by its folder alone. It records nothing if that takes too much of the
// description of the run, or JSON cannot hold it.
func recordSource(about *runs.About, file, dir string, opts Options) {
	const most = 512 << 10 // bytes
	path, err := filepath.Abs(file)
	if inside, ierr := filepath.Rel(dir, file); ierr == nil && filepath.IsLocal(inside) {
		path, err = inside, nil
	}
	size := len(path)
	for _, id := range opts.Samples {
		size += len(id)
	}
	if err == nil && size <= most && utf8.ValidString(path) {
		about.File, about.Samples, about.Limit, about.Epochs = path, opts.Samples, opts.Limit, opts.Epochs
	}
}

// RepeatAttempts returns a function for Options.Repeat: it repeats attempts that ended in an infrastructure error, those that
// failed (with a score below 1, or another error), or both.
func RepeatAttempts(infra, failed bool) func(*task.SampleResult) bool {
	return func(r *task.SampleResult) bool {
		if r.Error != nil && r.Error.Class == task.Infra {
			return infra
		}
		return failed && (r.Error != nil || !r.Score.Passed())
	}
}

// attempt runs the attempts of a run and records their results.
func attempt(ctx context.Context, taskOpts task.Options, runOpts task.RunOptions, r *runs.Run, opts Options) (Report, error) {
	report := Report{Dir: r.Dir()}
	taskOpts.Logger, taskOpts.Journal = opts.Logger, r.Journal
	taskOpts.Keep, taskOpts.Kept = opts.Keep, func(all []task.Kept) { report.Kept = all }
	taskOpts.Removed = func(rm task.Removal) {
		if rm.Err != nil {
			opts.Logger.Warn("a sandbox could not be removed: retrying at the end of the run", "sandbox", rm.Sandbox.Name, "error", rm.Err)
		}
	}
	runOpts.Done, runOpts.Progress = r.Done(), opts.Progress
	var failed, err error
	if opts.Began != nil {
		failed = opts.Began(r.Folder)
	}
	if failed == nil {
		failed = record(task.Run(ctx, taskOpts, runOpts), r, opts.Recorded)
	}
	if report.Summary, err = r.Finish(); err == nil && failed != nil && report.Summary.Recorded == 0 && opts.Resume == "" {
		report.Dir, err = "", r.Discard() // there is nothing to resume
	}
	if opts.Ended != nil {
		err = errors.Join(err, opts.Ended(&report))
	}
	return report, errors.Join(failed, err)
}

// record stores each result in the run's folder and then calls recorded. An error ends the run.
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

// readTask reads a task file and checks the options against it.
func readTask(file string, opts Options) (*taskfile.File, error) {
	f, err := taskfile.Open(file, taskfile.ReadOptions{AllowRead: opts.AllowRead, AllowUnsafe: opts.AllowUnsafe, Logger: opts.Logger})
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

// hiddenRuns returns the folders of runs that must not be in any image: those in the task's folder, this run's, and
// all of dir, which holds new runs. If the task's folder is inside dir, only the runs in dir are returned, without a run that
// has the task's folder in it.
func hiddenRuns(f *taskfile.File, dir, run string) ([]string, error) {
	if f.Provider() == spec.TypeLocal { // it builds no images
		return nil, nil
	}
	folder := filepath.Dir(f.File)
	if hostpath.Contains(dir, folder) {
		hidden, err := runs.Below(dir)
		return slices.DeleteFunc(append(hidden, run), func(path string) bool { return hostpath.Contains(path, folder) }), err
	}
	hidden, err := runs.Below(folder)
	return append(hidden, dir, run), err
}

// choose returns the samples with the given IDs in the order of the task, at most limit of them. Nil IDs mean all
// samples, a limit of 0 no limit.
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

// openRun creates the folder of a new run, or resumes a run, which must have the same task and the same samples.
func openRun(dir string, opts Options, about runs.About, resolved []byte) (*runs.Run, error) {
	if opts.Resume == "" {
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
			Op: "resume", Path: r.Dir(), Class: fumehood.ErrConfig, Err: errors.New("the task has changed since the run began"),
			Hint: "start a new run: scores of different tasks cannot be combined",
		}
	case r.About().Attempts != about.Attempts:
		err = &fumehood.Error{
			Op: "resume", Path: r.Dir(), Class: fumehood.ErrConfig, Err: fmt.Errorf("the run has %d attempts, not %d", r.About().Attempts, about.Attempts),
			Hint: "use the same --sample, --limit and --epochs as before",
		}
	default:
		repeat := opts.Repeat
		if repeat == nil {
			repeat = RepeatAttempts(true, false)
		}
		_, err = r.Drop(repeat)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
