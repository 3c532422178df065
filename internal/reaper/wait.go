package reaper

import (
	"encoding/json"
	"io"
	"os"
	"sync"

	"github.com/fumehood/fumehood/internal/owner"
)

// Orphans is what a process has left to its reaper.
type Orphans struct {
	Owner owner.ID // may still be about to end
	Jobs  []json.RawMessage
}

// Wait returns nil immediately in a process that is not a reaper, and enables Entrust there. In a reaper it waits until
// the owner has ended, and returns what to do; if there is nothing to do, it exits the process. It may be called
// several times.
func Wait() *Orphans { return waited() }

var waited = sync.OnceValue(wait)

func wait() *Orphans {
	id, err := owner.Parse(os.Getenv(variable))
	_ = os.Unsetenv(variable) // child processes must not inherit it
	if err != nil || os.Args[0] != processName {
		current.mu.Lock()
		defer current.mu.Unlock()
		current.possible = true
		return nil
	}
	detach()
	jobs := listen(os.Stdin)
	if len(jobs) == 0 {
		os.Exit(0) //nolint:forbidigo // the process is ours, and its only task is done
	}
	return &Orphans{Owner: id, Jobs: jobs}
}

// listen returns the jobs of the last complete message when the messages have ended.
func listen(r io.Reader) []json.RawMessage {
	var last []json.RawMessage
	for dec := json.NewDecoder(r); ; {
		var jobs []json.RawMessage
		if dec.Decode(&jobs) != nil { // the end, or an incomplete message
			return last
		}
		last = jobs
	}
}
