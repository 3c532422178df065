package task

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
)

// Attempt is one try at a sample in one epoch, in its own sandbox, which is not used for anything else.
type Attempt struct {
	Sample  *Sample
	Epoch   int              // from 1
	Try     int              // from 1: the number of sandboxes used for this sample and epoch, including this one
	Sandbox fumehood.Sandbox // set up: the files are written, and the setup script has succeeded

	Steps []Step // commands run by the solver, in order; the solver appends them
	// Unstarted is the reason why the solver ended with a step that could not be started because of what the attempt had
	// done before; the solver sets it. Such an attempt has the score 0 with this reason, and no scorer is called. Empty
	// means that every step was started.
	Unstarted string
	// Grader is the command that scored the attempt, for the result; the scorer sets it. Nil if there was none.
	Grader *Step

	run    *run        // nil if not created by Run
	beside atomic.Bool // the attempt has a second sandbox, see Beside
	limit  *allowance  // nil if there is no limit
}

// Step is a command that ran in an attempt.
type Step struct {
	Name   string // name of the step in its task file, or its number from 1
	Cmd    fumehood.Cmd
	Result *fumehood.Result
}

// Solver does the work of an attempt: it runs commands and records them in Attempt.Steps. A program's outcome is
// never an error. An error makes the attempt a Failure with the error's class, except as described at Run.
type Solver func(ctx context.Context, a *Attempt) error

// Scorer scores an attempt after its solver has finished. The sandbox still exists. An error is never a
// score: it makes the attempt a Failure, except as described at Run.
type Scorer func(ctx context.Context, a *Attempt) (Score, error)

// Score is the score of an attempt.
type Score struct {
	// Value is from 0 to 1; 1 means passed.
	Value float64 `json:"value"`
	// Parts are named scores, each from 0 to 1; nil if there are none.
	Parts map[string]float64 `json:"parts,omitempty"`
	// Reasons describe, for display, why points were lost; empty if none were.
	Reasons []string `json:"reasons,omitempty"`
}

// Passed reports whether the score is full.
func (s Score) Passed() bool { return s.Value >= 1 }

// The classes of a Failure. They are codes of errors: see fumehood.Code.
const (
	Infra    = string(fumehood.CodeInfrastructure) // the daemon, the machine or Fumehood failed: a retry may succeed
	Config   = string(fumehood.CodeConfig)         // the task is invalid
	Limit    = string(fumehood.CodeLimit)          // one of our limits, or a time limit of the solver or scorer
	Canceled = string(fumehood.CodeCanceled)       // the run was canceled
)

// Failure is the reason why an attempt has no score.
type Failure struct {
	Class string `json:"class"`
	Phase string `json:"phase"` // "start", "solve" or "score"
	Text  string `json:"text"`

	unhealthy string // the service that became unhealthy in a start; empty if none did
}

// SampleResult is the result of a sample in one epoch. Either Score or Error is set.
type SampleResult struct {
	Sample  string   `json:"sample"`
	Epoch   int      `json:"epoch"`
	Tries   int      `json:"tries"`             // number of sandboxes used, from 1; 0 if none was started
	Sandbox string   `json:"sandbox,omitempty"` // name of the last sandbox
	Score   *Score   `json:"score,omitempty"`
	Error   *Failure `json:"error,omitempty"`

	Steps  []StepResult `json:"steps,omitempty"`  // of the last try
	Grader *StepResult  `json:"grader,omitempty"` // the command that scored the last try; nil if there was none

	// Metadata is that of the sample, see Sample.Metadata; nil if it has none.
	Metadata map[string]string `json:"metadata,omitempty"`

	Started time.Time `json:"started"`
	// Phases are the seconds spent in each phase, summed over all tries: "acquire" (until a sandbox is available),
	// "setup", "solve", "score", "remove".
	Phases map[string]float64 `json:"phases,omitempty"`
}

// Key identifies a sample in an epoch.
type Key struct {
	Sample string
	Epoch  int
}

// The labels of a task's sandboxes (Spec.Labels). A sandbox that was started ahead has only LabelTask until it is
// assigned to a sample.
const (
	LabelTask   = "task"
	LabelSample = "sample"
	LabelEpoch  = "epoch"
)

// KeyOf returns the sample and epoch of a task's sandbox, or the zero Key if it has no sample yet.
func KeyOf(sandbox fumehood.Info) Key {
	epoch, _ := strconv.Atoi(sandbox.Labels[LabelEpoch]) // 0 if there is no label
	return Key{sandbox.Labels[LabelSample], epoch}
}

// labels returns the labels of a sandbox of the task, including those of its spec.
func (t *Task) labels(own map[string]string, key Key) map[string]string {
	labels := map[string]string{LabelTask: t.opts.Name}
	maps.Copy(labels, own)
	if key != (Key{}) {
		labels[LabelSample], labels[LabelEpoch] = key.Sample, strconv.Itoa(key.Epoch)
	}
	return labels
}

// Key returns the result's sample and epoch.
func (r *SampleResult) Key() Key { return Key{r.Sample, r.Epoch} }

// StepResult is the recorded form of a Step. Its JSON is that of the result, with the name as one more field. Stdout and
// Stderr are the ends of the outputs, up to RunOptions.OutputCap.
type StepResult struct {
	Name string `json:"name"`
	fumehood.Result
}

// MarshalJSON encodes the step as one object.
func (s StepResult) MarshalJSON() ([]byte, error) {
	return jsontext.Join(struct {
		Name string `json:"name"`
	}{s.Name}, s.Result)
}

// UnmarshalJSON decodes a step. Unknown fields are ignored.
func (s *StepResult) UnmarshalJSON(text []byte) error {
	named := struct {
		Name *string `json:"name"`
	}{&s.Name}
	return errors.Join(json.Unmarshal(text, &named), json.Unmarshal(text, &s.Result))
}
