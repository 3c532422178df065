// Package owner says which process made a thing, in a form that fits a label, and whether that process
// still lives. It is what keeps clean-up from touching what a living process holds.
package owner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ID identifies one process on one machine, for good: no other process ever has the same.
type ID struct {
	Host  string // the machine's id, where it has one, and its name
	Boot  string // changes with every boot; "-" where the platform has none
	PIDNS string // the PID namespace that PID counts in; "-" where the platform has none
	PID   int
	Start uint64 // when the process started, in a unit of the platform's
}

// version comes first in the text form, so that a later form can be told from this one.
const version = "v1"

// String is the text form, which Parse reads.
func (id ID) String() string {
	return fmt.Sprintf("%s %s %s %s %d %d", version, id.Host, id.Boot, id.PIDNS, id.PID, id.Start)
}

// Parse reads the text form.
func Parse(s string) (ID, error) {
	f := strings.Fields(s)
	if len(f) != 6 || f[0] != version {
		return ID{}, fmt.Errorf("%q is no owner of form %s", s, version)
	}
	pid, err := strconv.Atoi(f[4])
	if err != nil || pid <= 0 {
		return ID{}, fmt.Errorf("owner %q: bad pid", s)
	}
	start, err := strconv.ParseUint(f[5], 10, 64)
	if err != nil {
		return ID{}, fmt.Errorf("owner %q: bad start time", s)
	}
	return ID{Host: f[1], Boot: f[2], PIDNS: f[3], PID: pid, Start: start}, nil
}

// State is what can be said of an owner from here.
type State string

const (
	// Alive: the process runs.
	Alive State = "alive"
	// Dead: the process has ended, or its machine has booted since.
	Dead State = "dead"
	// Unknown: it cannot be judged from here (another machine, another PID namespace).
	Unknown State = "unknown"
)

// Self returns the identity of this process.
var Self = sync.OnceValues(func() (ID, error) {
	id, err := machine()
	if err != nil {
		return ID{}, err
	}
	id.PID = os.Getpid()
	start, running, err := startTime(id.PID)
	if err != nil || !running {
		return ID{}, fmt.Errorf("read this process's start time: %w", err)
	}
	id.Start = start
	return id, nil
})

// Judge says whether the owner lives, as seen by self.
func Judge(self, id ID) State {
	switch {
	case id == self:
		return Alive
	case id.Host != self.Host:
		return Unknown
	case id.Boot != self.Boot:
		return Dead
	case id.PIDNS != self.PIDNS:
		return Unknown
	}
	start, running, err := startTime(id.PID)
	switch {
	case err != nil:
		return Unknown
	case running && start == id.Start:
		return Alive
	}
	return Dead
}

// word makes s fit into the text form.
func word(s string) string {
	s = strings.Join(strings.Fields(s), "_")
	if s == "" {
		return "-"
	}
	return s
}
