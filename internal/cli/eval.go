package cli

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/runs"
	"github.com/fumehood/fumehood/spec"
)

// evalOptions are what `fumehood eval` was asked to do.
type evalOptions struct {
	file   string
	resume string // the run to go on with, as it was typed
	how    eval.Options
	json   bool
	allow  allowFlags
}

func (a *commandLine) newEvalCommand(runF func(context.Context, *commandLine, evalOptions) error) *cobra.Command {
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
	flags.IntVar(&opts.how.Limit, "limit", 0, "run only the first `number` of samples")
	flags.StringArrayVar(&opts.how.Samples, "sample", nil, "run only the sample of this `id`; may be given again")
	flags.IntVar(&opts.how.Epochs, "epochs", 0, "attempt each sample this `number` of times (default: as the task says)")
	flags.StringVar(&shuffle, "shuffle", "", "shuffle the samples, by this `seed`")
	flags.BoolVar(&opts.how.FailFast, "fail-fast", false, "begin no more samples after the first that does not pass")
	flags.StringVar(&opts.resume, "resume", "", "go on with this `run`, a name in the folder of runs or a path")
	flags.BoolVar(&opts.how.Keep, "no-cleanup", false, "leave the sandboxes of all samples in place, and list how to enter and remove them")
	flags.BoolVar(&opts.json, "json", false, "print one JSON object a line for each event")
	opts.allow.add(flags, "task")
	a.addRunsFlag(flags, &opts.how.Runs)
	return cmd
}

// check refuses numbers that mean nothing. changed reports whether a flag was given.
func (o *evalOptions) check(changed func(flag string) bool) error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"max-sandboxes", o.how.MaxSandboxes}, {"max-starting", o.how.MaxStarting}, {"limit", o.how.Limit}, {"epochs", o.how.Epochs}} {
		if changed(n.flag) && n.value < 1 {
			return usageError("--%s %d is not above 0", n.flag, n.value)
		}
	}
	return nil
}

// runEval runs a task, or what is missing of a run of it.
func runEval(ctx context.Context, a *commandLine, o evalOptions) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // so that the memory that docs/eval.md tells of is enough on a busy machine too
	}
	if o.resume != "" {
		o.how.Resume = runDir(o.how.Runs, o.resume)
	}
	out := a.newEvalOutput(o.json)
	defer out.stop()
	o.how.Open, o.how.AllowLocal = a.open, a.provider == spec.TypeLocal
	o.how.AllowRead, o.how.AllowUnsafe = o.allow.allowRead, o.allow.allowUnsafe
	o.how.Building, o.how.Progress, o.how.Recorded, o.how.Logger = a.building, out.progress, out.result, a.log
	untold := func() bool { return true }
	o.how.Began = func(r *runs.Folder) error {
		untold = context.AfterFunc(ctx, out.stopping)
		return out.start(r)
	}
	o.how.Ended = func(r *eval.Report) error {
		untold()
		out.stop()
		var err error
		if r.Summary.Recorded > 0 {
			err = out.end(r.Dir, &r.Summary)
		}
		if len(r.Kept) > 0 {
			err = errors.Join(err, out.kept(r.Kept))
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
		return err
	case summary.Recorded > summary.Passed+summary.Failed, o.how.FailFast && summary.Failed > 0:
		return &exitError{code: exitCheckFailed}
	}
	return nil
}
