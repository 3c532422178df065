package cli

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/session/spec"
)

// resumeOptions are the options of `fumehood eval` for resuming a run.
type resumeOptions struct {
	run    string // the run to continue, as typed
	errors bool   // make attempts with an infrastructure error again
	failed bool   // make all others that did not pass again
	// command is the command line without the run and TASK, for a run that is interrupted.
	command []string
}

func (o *resumeOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.run, "resume", "", "continue this `run`: a name in the folder of runs, or a path")
	flags.BoolVar(&o.errors, "retry-errors", true, "with --resume: repeat attempts that ended in an infrastructure error")
	flags.BoolVar(&o.failed, "retry-failed", false, "with --resume: repeat attempts that failed, with a score below 1 or an error of the task")
}

// validate checks the options after the flags have been parsed, and records the command line. Settings that come from
// variables and the configuration file apply to later commands as well.
func (o *resumeOptions) validate(flags *pflag.FlagSet, settings map[string]bool) error {
	for _, flag := range []string{"retry-errors", "retry-failed"} {
		if flags.Changed(flag) && o.run == "" {
			return usageError("--%s needs --resume", flag)
		}
	}
	flags.Visit(func(f *pflag.Flag) {
		switch list, isList := f.Value.(pflag.SliceValue); {
		case settings[f.Name], f.Name == "resume", f.Name == "retry-failed", f.Name == "retry-errors" && o.errors:
		case isList:
			for _, value := range list.GetSlice() {
				o.command = append(o.command, "--"+f.Name, value)
			}
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			o.command = append(o.command, "--"+f.Name)
		case f.Value.Type() == "bool":
			o.command = append(o.command, "--"+f.Name+"=false")
		default:
			o.command = append(o.command, "--"+f.Name, f.Value.String())
		}
	})
	return nil
}

// repeats reports whether the resumed run makes a recorded attempt again.
func (o *resumeOptions) repeats(r *task.SampleResult) bool {
	return eval.RepeatAttempts(o.errors, o.failed)(r)
}

// tellResume logs the command that continues a run with missing attempts.
func (a *commandLine) tellResume(file string, o *resumeOptions, r *eval.Report) {
	s := &r.Summary
	if r.Dir == "" || s.Recorded-s.Errors[task.Canceled] >= s.Attempts {
		return
	}
	words := slices.Concat([]string{"fumehood", "eval", "--resume", r.Dir}, o.command)
	if strings.HasPrefix(file, "-") {
		words = append(words, "--")
	}
	words = append(words, file)
	a.tell("resume the run with: %s", spec.QuoteAll(words))
}
