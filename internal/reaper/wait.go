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
	Owner owner.ID // it may still be about to end
	Jobs  []json.RawMessage
}

// Wait returns nil at once in a process that was not started by Entrust, which can start a reaper from then on. In a reaper it
// returns when the owner has ended, with what is to be done; where that is nothing, it ends the process. It may be called again.
func Wait() *Orphans { return waited() }

var waited = sync.OnceValue(wait)

func wait() *Orphans {
	id, err := owner.Parse(os.Getenv(variable))
	_ = os.Unsetenv(variable) // it is not for the processes that this one may start
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

// listen returns the jobs that are to be done when the messages have ended: those of the last whole one.
func listen(r io.Reader) []json.RawMessage {
	var last []json.RawMessage
	for dec := json.NewDecoder(r); ; {
		var jobs []json.RawMessage
		if dec.Decode(&jobs) != nil { // the end, or what was torn by it
			return last
		}
		last = jobs
	}
}
