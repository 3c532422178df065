package reaper

import (
	"encoding/json"
	"io"
	"os"
	"sync"

	"github.com/fumehood/fumehood/internal/owner"
)

// orphans is what a process has left to its reaper.
type orphans struct {
	owner owner.ID // may still be about to end
	tasks []task
}

// Wait returns immediately in a process that is not a reaper. In a reaper it waits until the owner has ended; if there
// is nothing to do then, it exits the process. It may be called several times.
func Wait() { waited() }

var waited = sync.OnceValue(wait)

func wait() *orphans {
	id, err := owner.Parse(os.Getenv(variable))
	_ = os.Unsetenv(variable) // child processes must not inherit it
	if err != nil || os.Args[0] != processName {
		return nil
	}
	detach()
	tasks := listen(os.Stdin)
	if len(tasks) == 0 {
		os.Exit(0) //nolint:forbidigo // the process is ours, and its only task is done
	}
	return &orphans{owner: id, tasks: tasks}
}

// listen returns the jobs of the last complete message when the messages have ended.
func listen(r io.Reader) []task {
	var last []task
	for dec := json.NewDecoder(r); ; {
		var tasks []task
		if dec.Decode(&tasks) != nil { // the end, or an incomplete message
			return last
		}
		last = tasks
	}
}
