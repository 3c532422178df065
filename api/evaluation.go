package api

import (
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

// EvaluationOptions describe an evaluation to start. Paths are on the server's machine.
type EvaluationOptions struct {
	Task         string   `json:"task,omitempty" doc:"a task file, or the folder of a task.yaml"`
	Runs         string   `json:"runs,omitempty" doc:"folder in which the run's folder is created"`
	Name         string   `json:"name,omitempty" maxLength:"200" pattern:"^[A-Za-z0-9_][A-Za-z0-9_.-]*$" doc:"of the run's folder; by default a new one. It may exist and hold the task's files, in its folder source"`
	Resume       string   `json:"resume,omitempty" doc:"folder of a run to resume, in the place of runs. Without task, it is resumed as it was started"`
	RetryErrors  *bool    `json:"retry_errors,omitempty" doc:"with resume: repeat attempts that ended in an infrastructure error; by default true"`
	RetryFailed  bool     `json:"retry_failed,omitempty" doc:"with resume: repeat attempts that failed, with a score below 1 or an error of the task"`
	Samples      []string `json:"samples,omitempty" doc:"ids; all by default"`
	Limit        int      `json:"limit,omitempty" minimum:"0" doc:"highest number of samples; 0 means no limit"`
	Epochs       int      `json:"epochs,omitempty" minimum:"0" doc:"0 means the task's"`
	Shuffle      *uint64  `json:"shuffle,omitempty" doc:"seed of a random order"`
	MaxSandboxes int      `json:"max_sandboxes,omitempty" minimum:"0"`
	MaxStarting  int      `json:"max_starting,omitempty" minimum:"0"`
	Retries      int      `json:"retries,omitempty" minimum:"-1" doc:"after failures of the infrastructure; -1 means none"`
	FailFast     bool     `json:"fail_fast,omitempty"`
	AllowRead    []string `json:"allow_read,omitempty" doc:"paths outside the task's folder that it may read"`
	AllowUnsafe  bool     `json:"allow_unsafe,omitempty" doc:"allow what breaks the isolation"`
}

// Evaluation describes an evaluation of a lease.
type Evaluation struct {
	ID    string `json:"id"`
	Run   string `json:"run,omitempty" doc:"the run's folder, when it exists"`
	Ended bool   `json:"ended"`
	Error *Error `json:"error,omitempty" doc:"why it could not be completed"`
}

// Types of events of an evaluation, beside EventError and EventHeartbeat.
const (
	EvalStart    = "start"
	EvalBuilding = "building"
	EvalProgress = "progress"
	EvalResult   = "result"
	EvalKept     = "kept"
	EvalEnd      = "end"
)

// EvalEvent is an event of an evaluation: a line of `fumehood eval --json`, and of the server's stream, whose last one is
// "end" or "error". The events before the first attempt are "building" and "start".
type EvalEvent struct {
	Event string `json:"event" enum:"start,building,progress,result,kept,end,error,heartbeat"`
	*EvalStarted
	*EvalStep
	*EvalCounts
	Result *task.SampleResult `json:"result,omitempty" doc:"of result"`
	*EvalKeeps
	Summary *runs.Summary `json:"summary,omitempty" doc:"of end, and of error if attempts were made"`
	Error   *Error        `json:"error,omitempty"`
}

// EvalStarted is the content of "start".
type EvalStarted struct {
	Run      string `json:"run" doc:"the run's folder"`
	Task     string `json:"task"`
	Attempts int    `json:"attempts" doc:"in all"`
	Recorded int    `json:"recorded" doc:"already recorded before"`
	Repeated int    `json:"repeated,omitempty" doc:"recorded ones that are made again; not in recorded"`
}

// EvalStartedOf describes a run that has begun.
func EvalStartedOf(r *runs.Folder) (*EvalStarted, error) {
	was, err := r.Summary()
	return &EvalStarted{Run: r.Dir(), Task: was.Task, Attempts: was.Attempts, Recorded: was.Recorded}, err
}

// EvalStep is the content of "building".
type EvalStep struct {
	Image string `json:"image"`
	Step  string `json:"step"`
}

// EvalCounts is the content of "progress".
type EvalCounts struct {
	Total    int `json:"total" doc:"attempts to be made"`
	Queued   int `json:"queued"`
	Starting int `json:"starting"`
	Running  int `json:"running"`
	Passed   int `json:"passed"`
	Failed   int `json:"failed"`
	Errors   int `json:"errors"`
}

// EvalCountsOf returns the JSON form of a run's progress.
func EvalCountsOf(p task.Progress) *EvalCounts {
	c := EvalCounts(p)
	return &c
}

// EvalKeeps is the content of "kept": a sandbox that is left in place.
type EvalKeeps struct {
	Sandbox  string        `json:"sandbox"`
	Sample   string        `json:"sample"`
	Epoch    int           `json:"epoch"`
	Services []KeptService `json:"services"`
	Remove   []string      `json:"remove" doc:"the command that removes it"`
}

// KeptService is a service of a kept sandbox.
type KeptService struct {
	Container string   `json:"container,omitempty"`
	Enter     []string `json:"enter,omitempty" doc:"the command that opens a shell in it"`
}
