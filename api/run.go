package api

import (
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood/eval/runs"
)

// Run describes a run of a task: an object of `fumehood runs list --json`.
type Run struct {
	Run      string    `json:"run" doc:"name of its folder"`
	Folder   string    `json:"folder,omitempty" doc:"path of its folder; only in answers of the server"`
	Task     string    `json:"task"`
	Created  time.Time `json:"created"`
	State    string    `json:"state" enum:"running,finished,interrupted,unreadable"`
	Attempts int       `json:"attempts" doc:"planned"`
	Recorded int       `json:"recorded" doc:"without canceled attempts"`
	PassRate *float64  `json:"pass_rate" doc:"of the attempts with a score, from 0 to 1; null if there are none"`
	Duration float64   `json:"duration" doc:"seconds from the run's creation to its last result"`
	Error    *Error    `json:"error,omitempty" doc:"why it is unreadable"`
}

// RunUnreadable is the state of a run that cannot be read, which only the server lists. The other states are those of
// runs.Entry.
const RunUnreadable = "unreadable"

// RunOf describes a run. It leaves Folder empty.
func RunOf(e runs.Entry) Run {
	about := e.About()
	r := Run{
		Run: filepath.Base(e.Dir()), Task: about.Task, Created: about.Created, State: e.State(), Attempts: about.Attempts, Recorded: e.Recorded,
		Duration: e.Duration.Seconds(),
	}
	if e.PassRate != nil {
		r.PassRate = &e.PassRate.Value
	}
	return r
}
