package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/runs"
	"github.com/fumehood/fumehood/spec"
	"github.com/fumehood/fumehood/task"
	"github.com/fumehood/fumehood/taskfile"
)

// evalOptions are what `fumehood eval` was asked to do.
type evalOptions struct {
	file    string
	runs    string   // folder of runs
	resume  string   // the run to go on with; empty for a new one
	limit   int      // samples at most; 0 means all
	samples []string // their ids; nil means all
	how     task.RunOptions
	keep    bool // sandboxes
	json    bool
	allow   allowFlags
}

func (a *app) newEvalCommand(runF func(context.Context, *app, evalOptions) error) *cobra.Command {
	var opts evalOptions
	var shuffle string
	cmd := &cobra.Command{
		Use:   "eval TASK",
		Short: "Run an evaluation: each sample of a task in a sandbox of its own",
		Long: `Eval runs the samples of a task file, as many at once as the machine bears, each
in a fresh sandbox, and scores them. docs/eval.md tells what a task file says. A
folder stands for the task.yaml in it. The task says which provider its
sandboxes have, whatever --provider says.

What becomes of each sample is written to a run's folder as it ends; "fumehood
runs" shows and exports it. A failure of Fumehood's is no score: the attempt is
repeated in a new sandbox if that may help, and else recorded as an error.

Ctrl-C ends what runs, removes all sandboxes and writes what there is; a second
one leaves the sandboxes to the reaper. With --no-cleanup they stay, with all
that they take, until "fumehood cleanup" is given their names. --resume goes on
with a run that was interrupted or killed: what has a score keeps it.

Exit codes: 0 each sample has a score, however low; 1 some have none, or with
--fail-fast one did not pass; 2 wrong usage; 125 Fumehood failed; 130 ended by
Ctrl-C.`,
		Example: `  fumehood eval examples/judge
  fumehood eval task.yaml --sample sum/right.py --sample sum/wrong.py
  fumehood eval task.yaml --epochs 5 --shuffle 7 --max-sandboxes 16
  fumehood eval task.yaml --resume 20261122-010203-judge-abcde
  fumehood eval task.yaml --json | jq 'select(.event == "result")'`,
		Args: wantArguments("TASK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.file = args[0]
			if err := opts.check(cmd.Flags().Changed); err != nil {
				return err
			}
			if cmd.Flags().Changed("shuffle") {
				seed, err := strconv.ParseUint(shuffle, 10, 64)
				if err != nil {
					return usageError("--shuffle %q is no whole number from 0 on", shuffle)
				}
				opts.how.Shuffle = &seed
			}
			return runF(cmd.Context(), a, opts)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.how.MaxSandboxes, "max-sandboxes", 0, "have at most this `number` of sandboxes at once (default: by cores, memory and the limits of the samples)")
	flags.IntVar(&opts.how.MaxStarting, "max-starting", 0, "start at most this `number` of sandboxes at once (default: by cores)")
	flags.IntVar(&opts.limit, "limit", 0, "run only the first `number` of samples")
	flags.StringArrayVar(&opts.samples, "sample", nil, "run only the sample of this `id`; may be given again")
	flags.IntVar(&opts.how.Epochs, "epochs", 0, "attempt each sample this `number` of times (default: as the task says)")
	flags.StringVar(&shuffle, "shuffle", "", "shuffle the samples, by this `seed`")
	flags.BoolVar(&opts.how.FailFast, "fail-fast", false, "begin no more samples after the first that does not pass")
	flags.StringVar(&opts.resume, "resume", "", "go on with this `run`, a name in the folder of runs or a path")
	flags.BoolVar(&opts.keep, "no-cleanup", false, "leave the sandboxes of all samples in place, and list how to enter and remove them")
	flags.BoolVar(&opts.json, "json", false, "print one JSON object a line for each event")
	opts.allow.add(flags, "task")
	a.addRunsFlag(flags, &opts.runs)
	return cmd
}

// check refuses numbers that mean nothing. changed reports whether a flag was given.
func (o *evalOptions) check(changed func(flag string) bool) error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"max-sandboxes", o.how.MaxSandboxes}, {"max-starting", o.how.MaxStarting}, {"limit", o.limit}, {"epochs", o.how.Epochs}} {
		if changed(n.flag) && n.value < 1 {
			return usageError("--%s %d is not above 0", n.flag, n.value)
		}
	}
	return nil
}

// runEval runs a task, or what is missing of a run of it.
func runEval(ctx context.Context, a *app, o evalOptions) (err error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // so that the memory that docs/eval.md tells of is enough on a busy machine too
	}
	if info, err := os.Stat(o.file); err == nil && info.IsDir() {
		o.file = filepath.Join(o.file, "task.yaml")
	}
	f, err := taskfile.Read(o.file, taskfile.ReadOptions{AllowRead: o.allow.allowRead, AllowUnsafe: o.allow.allowUnsafe, Logger: a.log})
	if err != nil {
		return err
	}
	for _, id := range o.samples {
		if !slices.ContainsFunc(f.Samples, func(s *taskfile.Sample) bool { return s.ID == id }) {
			return usageError("the task has no sample %q", id)
		}
	}
	out := a.newEvalOutput(o.json)
	defer out.stop()
	p, err := a.openFor(ctx, f.File, f.Provider())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	if err := keepRunsFromImages(f, o.runs); err != nil {
		return err
	}
	if err := f.Build(ctx, p, a.building); err != nil {
		return err
	}
	opts, err := f.Options(p)
	if err != nil {
		return err
	}
	opts.Samples = choose(opts.Samples, o.samples, o.limit)
	how := o.over(f.RunOptions())
	resolved, err := f.Resolved()
	if err != nil {
		return err
	}
	r, err := a.openRun(o, runs.About{Task: opts.Name, Attempts: len(opts.Samples) * max(how.Epochs, 1)}, resolved)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f.KeepFromImages(r.Dir())
	opts.Logger, opts.Journal = a.log, r.Journal
	var kept []task.Kept
	opts.Keep, opts.Kept = o.keep, func(all []task.Kept) { kept = all }
	opts.Removed = func(rm task.Removal) {
		if rm.Err != nil {
			a.log.Warn("a sandbox could not be removed, which is tried once more at the end", "sandbox", rm.Sandbox.Name, "error", rm.Err)
		}
	}
	how.Done, how.Progress = r.Done(), out.progress
	if err := out.start(r); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, out.stopping)()
	failed := record(task.Run(ctx, opts, how), r, out)
	summary, err := r.Finish()
	out.stop()
	if err == nil && failed != nil && summary.Recorded == 0 && o.resume == "" { // nothing to go on with
		return errors.Join(failed, r.Discard())
	}
	if err == nil && (failed == nil || summary.Recorded > 0) {
		err = out.end(r, &summary)
	}
	if len(kept) > 0 {
		err = errors.Join(err, out.kept(kept))
	}
	switch {
	case failed != nil || err != nil:
		return errors.Join(failed, err)
	case summary.Recorded > summary.Passed+summary.Failed, o.how.FailFast && summary.Failed > 0:
		return &exitError{code: exitCheckFailed}
	}
	return nil
}

// keepRunsFromImages keeps folders of runs from the contexts of builds: those in the task's folder, and all of dir, where
// new ones go, unless the task lies in it.
func keepRunsFromImages(f *taskfile.File, dir string) error {
	if f.Provider() == spec.TypeLocal { // which builds none
		return nil
	}
	task := filepath.Dir(f.File)
	below, err := runs.Below(task)
	if err != nil {
		return err
	}
	f.KeepFromImages(below...)
	if hostpath.Contains(dir, task) {
		return nil
	}
	f.KeepFromImages(dir)
	return nil
}

// record records results as they come, and tells of them. Where it cannot, it ends the run.
func record(results iter.Seq2[task.SampleResult, error], r *runs.Run, out *evalOutput) error {
	for res, err := range results {
		if err == nil {
			err = r.Append(res)
		}
		if err == nil {
			err = out.result(&res)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// over is how a task is run, with what flags say over what its file does.
func (o *evalOptions) over(how task.RunOptions) task.RunOptions {
	how.MaxSandboxes, how.MaxStarting, how.Shuffle, how.FailFast = o.how.MaxSandboxes, o.how.MaxStarting, o.how.Shuffle, o.how.FailFast
	if o.how.Epochs > 0 {
		how.Epochs = o.how.Epochs
	}
	return how
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

// openRun makes the folder of a new run, or goes on with one, which has to be of the same task and the same samples.
func (a *app) openRun(o evalOptions, about runs.About, resolved []byte) (*runs.Run, error) {
	if o.resume == "" {
		return runs.Create(filepath.Join(o.runs, runs.NewName(about.Task, time.Now())), about, resolved)
	}
	r, err := runs.Open(runDir(o.runs, o.resume))
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
