package reaper

import (
	"encoding/json"
	"io"
	"os"

	"github.com/fumehood/fumehood/internal/owner"
)

// Orphans is what a process has left to its reaper.
type Orphans struct {
	Owner owner.ID // it may still be about to end
	Jobs  []json.RawMessage
}

var orphans *Orphans

// Left tells whether this process is a reaper whose owner has ended, and what is to be done then: nil where it is none,
// as every process is that was not started by Entrust. Who does the jobs asks for them in an init function, so that
// nothing else runs, and ends the process then.
func Left() *Orphans { return orphans }

// In a reaper this does not return before its owner has ended. As this package imports next to nothing, little of the
// program is initialised by then, and little memory taken.
func init() {
	text, is := os.LookupEnv(variable)
	if !is {
		return
	}
	_ = os.Unsetenv(variable) // it is not for the processes that this one may start
	id, err := owner.Parse(text)
	if err != nil {
		return
	}
	detach()
	jobs := listen(os.Stdin)
	if len(jobs) == 0 {
		os.Exit(0) //nolint:forbidigo // the process is ours, and its only task is done
	}
	orphans = &Orphans{Owner: id, Jobs: jobs}
}

// listen returns the jobs that are to be done when the messages have ended.
func listen(r io.Reader) []json.RawMessage {
	jobs := map[int]json.RawMessage{}
	var order []int
	for dec := json.NewDecoder(r); ; {
		var m message
		if err := dec.Decode(&m); err != nil { // the end, or what was torn by it
			break
		}
		switch _, known := jobs[m.ID]; {
		case m.Done:
			delete(jobs, m.ID)
		case !known:
			order = append(order, m.ID)
			fallthrough
		default:
			jobs[m.ID] = m.Job
		}
	}
	var left []json.RawMessage
	for _, id := range order {
		if job, is := jobs[id]; is {
			left = append(left, job)
		}
	}
	return left
}
