// Package owner identifies the process that made an object, in a form that fits a label, and determines whether that
// process still lives. Cleanup uses it so that it does not touch what a living process holds.
package owner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ID identifies one process on one machine permanently: no other process ever has the same ID.
type ID struct {
	Host  string // the machine's ID, if it has one, and its name
	Boot  string // changes with every boot; "-" if the platform has none
	PIDNS string // the PID namespace of PID; "-" if the platform has none
	PID   int
	Start uint64 // when the process started, in a platform-specific unit
}

// version is the first word of the text form, so that later forms can be distinguished.
const version = "v1"

// String returns the text form, which Parse reads.
func (id ID) String() string {
	return fmt.Sprintf("%s %s %s %s %d %d", version, id.Host, id.Boot, id.PIDNS, id.PID, id.Start)
}

// Parse parses the text form.
func Parse(s string) (ID, error) {
	f := strings.Fields(s)
	if len(f) != 6 || f[0] != version {
		return ID{}, fmt.Errorf("%q is not an owner of form %s", s, version)
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

// State is what is known about an owner.
type State string

const (
	// Alive means that the process is running.
	Alive State = "alive"
	// Dead means that the process has ended, or that its machine has booted since.
	Dead State = "dead"
	// Unknown means that the process cannot be judged from here: it is on another machine, or in another PID namespace.
	Unknown State = "unknown"
)

// Self returns the identity of this process.
var Self = sync.OnceValues(func() (ID, error) { return Of(os.Getpid()) })

// Of returns the identity of a running process, whose number is that in this process's PID namespace.
func Of(pid int) (ID, error) {
	id, err := machine()
	if err != nil {
		return ID{}, err
	}
	id.PID = pid
	start, running, err := startTime(pid)
	if err == nil && !running {
		err = os.ErrProcessDone
	}
	if err != nil {
		return ID{}, fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	id.Start = start
	return id, nil
}

// Judge reports whether the owner lives, as seen by self.
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

// word returns s in a form that fits into the text form.
func word(s string) string {
	s = strings.Join(strings.Fields(s), "_")
	if s == "" {
		return "-"
	}
	return s
}
