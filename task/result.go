package task

import (
	"context"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
)

// Attempt is one try at a sample in one epoch, in a sandbox of its own that is used for nothing else.
type Attempt struct {
	Sample  *Sample
	Epoch   int              // from 1 on
	Try     int              // from 1 on: how many sandboxes this epoch of the sample has had, this one included
	Sandbox fumehood.Sandbox // set up: its files are there, and its set-up has succeeded

	Steps []Step // what the solver has run, in order; it appends them

	run    *run        // nil for one that is not Run's
	beside atomic.Bool // there is one, see Beside
	limit  *allowance  // nil for none
}

// Step is a command that was run in an attempt.
type Step struct {
	Name   string // of the step in its task file, or its number from 1 on
	Cmd    fumehood.Cmd
	Result *fumehood.Result
}

// Solver does the work of an attempt: it runs commands, and records them in Attempt.Steps. How a program ends is no
// error of it. An error is a failure of ours by its class, for which see Failure.
type Solver func(ctx context.Context, a *Attempt) error

// Scorer says how good an attempt was, once its solver is done. Its sandbox is still there. An error is a failure of
// ours, and never a score.
type Scorer func(ctx context.Context, a *Attempt) (Score, error)

// Score is how good an attempt was.
type Score struct {
	// Value is from 0 to 1. 1 passes.
	Value float64 `json:"value"`
	// Parts are scores by name, each from 0 to 1; nil where there are none.
	Parts map[string]float64 `json:"parts,omitempty"`
	// Reasons say, for a person, what was missed; empty where nothing was.
	Reasons []string `json:"reasons,omitempty"`
}

// Passed reports whether nothing was missed.
func (s Score) Passed() bool { return s.Value >= 1 }

// The classes of a Failure, which are codes of errors: see fumehood.Code.
const (
	Infra     = string(fumehood.CodeInfrastructure) // the daemon, the machine or we have failed: a new sandbox may do better
	Config    = string(fumehood.CodeConfig)         // the task asks for what cannot be
	Limit     = string(fumehood.CodeLimit)          // a limit of ours was met, or one of time that somebody set who solves or scores
	Cancelled = string(fumehood.CodeCancelled)      // somebody has ended the run
)

// Failure is why an attempt has no score.
type Failure struct {
	Class string `json:"class"`
	Phase string `json:"phase"` // "start", "solve" or "score"
	Text  string `json:"text"`
}

// SampleResult is what became of a sample in one epoch. Either Score or Error is set.
type SampleResult struct {
	Sample  string   `json:"sample"`
	Epoch   int      `json:"epoch"`
	Tries   int      `json:"tries"`             // sandboxes that were needed, from 1 on; 0 where none was started
	Sandbox string   `json:"sandbox,omitempty"` // the last one's name
	Score   *Score   `json:"score,omitempty"`
	Error   *Failure `json:"error,omitempty"`

	Steps []StepResult `json:"steps,omitempty"` // of the last try

	Started time.Time `json:"started"`
	// Phases are the seconds spent, by name and over all tries: "acquire" (until there is a sandbox, wherever it
	// comes from), "setup", "solve", "score", "remove".
	Phases map[string]float64 `json:"phases,omitempty"`
}

// Key names a sample in an epoch.
type Key struct {
	Sample string
	Epoch  int
}

// The labels of a task's sandboxes (Spec.Labels). Those that are started ahead have LabelTask alone until they are for a sample.
const (
	LabelTask   = "task"
	LabelSample = "sample"
	LabelEpoch  = "epoch"
)

// KeyOf is for what a task's sandbox is; the zero Key of one that is for no sample yet.
func KeyOf(sandbox fumehood.Info) Key {
	epoch, _ := strconv.Atoi(sandbox.Labels[LabelEpoch]) // 0 where there is none
	return Key{sandbox.Labels[LabelSample], epoch}
}

// labels are those of a sandbox of the task's, over those of its spec.
func (t *Task) labels(own map[string]string, of Key) map[string]string {
	labels := map[string]string{LabelTask: t.opts.Name}
	maps.Copy(labels, own)
	if of != (Key{}) {
		labels[LabelSample], labels[LabelEpoch] = of.Sample, strconv.Itoa(of.Epoch)
	}
	return labels
}

// Key is that of the result.
func (r *SampleResult) Key() Key { return Key{r.Sample, r.Epoch} }

// StepResult is a Step as it is recorded.
type StepResult struct {
	Name        string           `json:"name"`
	Outcome     fumehood.Outcome `json:"outcome"`
	ExitCode    int              `json:"exit_code"`
	Signal      int              `json:"signal,omitempty"`
	Duration    float64          `json:"duration"` // seconds
	CPU         float64          `json:"cpu"`      // seconds, user and system
	MaxRSS      int64            `json:"max_rss,omitempty"`
	OOMKills    int64            `json:"oom_kills,omitempty"`
	PIDsLimits  int64            `json:"pids_limits,omitempty"`
	StdoutTotal int64            `json:"stdout_total"` // bytes
	StderrTotal int64            `json:"stderr_total"` // bytes
	// Stdout and Stderr are the ends of the outputs, as much as the run records.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}
