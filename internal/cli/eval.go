package cli

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/session/spec"
)

// evalOptions are the options of `fumehood eval`.
type evalOptions struct {
	file   string
	resume resumeOptions
	how    eval.Options
	json   bool
	allow  allowFlags
}

func (a *commandLine) newEvalCommand(runF func(context.Context, *commandLine, evalOptions) error) *cobra.Command {
	var opts evalOptions
	var shuffle string
	cmd := &cobra.Command{
		Use:   "eval TASK",
		Short: "Run an evaluation: each sample of a task in its own sandbox",
		Long: `Eval runs the samples of a task file, each in a fresh sandbox, and scores them.
A folder stands for the task.yaml in it. docs/eval.md describes task files. If
its environment has the type docker, --provider chooses among the providers that
run images: auto, docker, native.

Each result is written to the run's folder at once; "fumehood runs" shows and
exports them. Infrastructure failures are not scored: the attempt is retried if
that may help, otherwise it is recorded as an error.

Ctrl-C stops all attempts, removes all sandboxes and writes the results so far.
A second Ctrl-C leaves the sandboxes to the reaper. With --no-cleanup the
sandboxes stay until "fumehood cleanup" is called with their names.

--resume continues a run that was interrupted or killed, and Ctrl-C prints the
command for it. Recorded scores are kept, unless --retry-failed repeats those
below 1. Attempts that ended in an infrastructure error are repeated, unless
--retry-errors=false keeps them.

Exit codes: 0 every sample has a score, however low; 1 some have none, or with
--fail-fast one did not pass; 2 wrong usage or an invalid task; 125 Fumehood
failed; 130 interrupted by Ctrl-C.`,
		Example: `  fumehood eval examples/judge
  fumehood eval task.yaml --sample sum/right.py --sample sum/wrong.py
  fumehood eval task.yaml --epochs 5 --shuffle 7 --max-sandboxes 16
  fumehood eval task.yaml --resume 20261122-010203-judge-abcde --retry-failed
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
					return usageError("--shuffle %q is not a whole number of at least 0", shuffle)
				}
				opts.how.Shuffle = &seed
			}
			if err := opts.resume.validate(cmd.Flags(), a.settings.used); err != nil {
				return err
			}
			return runF(cmd.Context(), a, opts)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.how.MaxSandboxes, "max-sandboxes", 0, "maximum `number` of sandboxes at once (default: by cores, memory and the samples' limits)")
	flags.IntVar(&opts.how.MaxStarting, "max-starting", 0, "maximum `number` of sandboxes that start at once (default: by cores)")
	flags.IntVar(&opts.how.Limit, "limit", 0, "run only the first `number` of samples")
	flags.StringArrayVar(&opts.how.Samples, "sample", nil, "run only the sample with this `id` (repeatable)")
	flags.IntVar(&opts.how.Epochs, "epochs", 0, "attempt each sample this `number` of times (default: as in the task)")
	flags.StringVar(&shuffle, "shuffle", "", "shuffle the samples with this `seed`")
	flags.BoolVar(&opts.how.FailFast, "fail-fast", false, "start no more samples after the first that does not pass")
	flags.IntVar(&opts.how.Retries, "retries", task.DefaultRetries, "retry an attempt at most this `number` of times after an infrastructure error")
	opts.resume.add(flags)
	flags.BoolVar(&opts.how.Keep, "no-cleanup", false, "keep the sandboxes of all samples, and print how to enter and remove them")
	flags.BoolVar(&opts.json, "json", false, "print a JSON object per line for each event")
	opts.allow.add(flags, "task")
	a.addRunsFlag(flags, &opts.how.Runs)
	return cmd
}

// check rejects numbers that are too low. changed reports whether a flag was given.
func (o *evalOptions) check(changed func(flag string) bool) error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"max-sandboxes", o.how.MaxSandboxes}, {"max-starting", o.how.MaxStarting}, {"limit", o.how.Limit}, {"epochs", o.how.Epochs}} {
		if changed(n.flag) && n.value < 1 {
			return usageError("--%s %d is not above 0", n.flag, n.value)
		}
	}
	if o.how.Retries < 0 {
		return usageError("--retries %d is negative", o.how.Retries)
	}
	if o.how.Retries == 0 {
		o.how.Retries = -1 // eval.Options: 0 means the default
	}
	return nil
}

// runEval runs a task, or the missing attempts of a run.
func runEval(ctx context.Context, a *commandLine, o evalOptions) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // so that the memory figure in docs/eval.md holds on a busy machine too
	}
	repeated := 0
	if o.resume.run != "" {
		o.how.Resume = runDir(o.how.Runs, o.resume.run)
		o.how.Repeat = func(r *task.SampleResult) bool {
			again := o.resume.repeats(r)
			if again {
				repeated++
			}
			return again
		}
	}
	out := a.newEvalOutput(o.json)
	defer out.stop()
	o.how.Open, o.how.AllowLocal = a.openFor, a.provider == spec.TypeLocal
	o.how.AllowRead, o.how.AllowUnsafe = o.allow.allowRead, o.allow.allowUnsafe
	o.how.Building, o.how.Progress, o.how.Recorded, o.how.Logger = a.building, out.progress, out.result, a.log
	untold := func() bool { return true }
	o.how.Began = func(r *runs.Folder) error {
		untold = context.AfterFunc(ctx, out.stopping)
		return out.printStart(r, repeated)
	}
	o.how.Ended = func(r *eval.Report) error {
		untold()
		out.stop()
		var err error
		if r.Summary.Recorded > 0 {
			err = out.end(r.Dir, &r.Summary)
		}
		if len(r.Kept) > 0 {
			err = errors.Join(err, out.reportKept(r.Kept))
		}
		return err
	}
	report, err := eval.Run(ctx, o.file, o.how)
	untold()
	summary := &report.Summary
	switch {
	case errors.Is(err, eval.ErrNoSample):
		return usageError("%w", err)
	case err != nil:
		a.tellResume(o.file, &o.resume, &report)
		return err
	case summary.Recorded > summary.Passed+summary.Failed, o.how.FailFast && summary.Failed > 0:
		return &exitError{code: exitCheckFailed}
	}
	return nil
}
