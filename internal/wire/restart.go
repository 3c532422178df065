package wire

import "time"

// ProgramID is the number of a detached command that is the service's own program. It is not listed. A program that has
// ended can be started again, and continues the output of the one before.
const ProgramID = 1<<31 - 1

// Restart makes a resident guest start the service's own program again after it has ended, also if it has ended before.
// Before the first Restart, hosts do that. The zero value means never. The guest does not start a program that is lost
// again. It answers with a Restarts.
type Restart struct {
	Always bool `json:"always,omitempty"`
	Failed bool `json:"failed,omitempty"` // if the exit code is not 0
	Most   int  `json:"most,omitempty"`   // number of restarts; 0 means no limit
	Done   int  `json:"done,omitempty"`   // number of restarts before
}

// Restarts is the guest's answer to a Restart.
type Restarts struct {
	Failed *Failed `json:"failed,omitempty"` // there is no program; nil on success
}

// Again reports whether a program that has ended with an exit code is started again.
func (r Restart) Again(code int) bool {
	return (r.Always || r.Failed && code != 0) && (r.Most == 0 || r.Done < r.Most)
}

// RestartPause returns the pause before a program that ran for some time is started again. last is the pause before it; 0 for
// none. Pauses double from 100 ms to a minute, as the Engine's do, and begin again if the program ran for 10 s.
func RestartPause(ran, last time.Duration) time.Duration {
	if last == 0 || ran >= 10*time.Second {
		return 100 * time.Millisecond
	}
	return min(2*last, time.Minute)
}
