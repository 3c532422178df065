package lazaret

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxDetached is how many detached commands a service has at most, running or ended and not forgotten.
const MaxDetached = 256

// ProcessInfo describes a command that Start handed over.
type ProcessInfo struct {
	ID      int       // the number among its service's detached commands, from 1 on; 0 for one that is not detached
	Args    []string  // the program and its arguments
	Started time.Time // when it was handed over, on the host's clock
	Ended   bool      // its end is known: Wait returns at once
}

// detached are the detached commands of one service. The zero value is empty.
type detached struct {
	mu   sync.Mutex
	last int
	byID map[int]*Process // nil for one that is being started
}

// reserve takes a number for a command that is to be started, and fails when there are too many.
func (d *detached) reserve() (id int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byID) >= MaxDetached {
		return 0, &Error{
			Class: ErrLimit, Err: fmt.Errorf("the service has %d detached commands, as many as it may", MaxDetached),
			Hint: "forget those that have ended, see Process.Forget",
		}
	}
	if d.byID == nil {
		d.byID = map[int]*Process{}
	}
	d.last++
	d.byID[d.last] = nil
	return d.last, nil
}

func (d *detached) list(p *Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byID[p.info.ID] = p
}

func (d *detached) remove(id int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byID, id)
}

// Processes lists the service's detached commands, those that run and those that have ended, until they
// are forgotten, in the order in which they were started. The list stays when the sandbox is closed.
func (s *Service) Processes() []*Process {
	s.detached.mu.Lock()
	defer s.detached.mu.Unlock()
	var all []*Process
	for _, p := range s.detached.byID {
		if p != nil {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *Process) int { return a.info.ID - b.info.ID })
	return all
}

// Process returns the detached command of that number, or an ErrConfig where the list has none.
func (s *Service) Process(id int) (*Process, error) {
	s.detached.mu.Lock()
	defer s.detached.mu.Unlock()
	if p := s.detached.byID[id]; p != nil {
		return p, nil
	}
	return nil, &Error{Op: "look up process", Service: s.info.Name, Class: ErrConfig, Err: fmt.Errorf("there is no detached command %d", id)}
}

// Info describes the command.
func (p *Process) Info() ProcessInfo {
	info := p.info
	info.Args = slices.Clone(info.Args)
	select {
	case <-p.done:
		info.Ended = true
	default:
	}
	return info
}

// Forget takes a detached command that has ended off its service's list. What is kept of it until then
// is its Result, whose output takes as much memory as there was, and at most Cmd's two caps. Forgetting
// a command that runs is an ErrConfig; forgetting one that is not on the list does nothing.
func (p *Process) Forget() error {
	if !p.Info().Ended {
		return &Error{Op: "forget", Service: p.svc.info.Name, Class: ErrConfig, Err: errors.New("the command has not ended"), Hint: "kill it first"}
	}
	p.svc.detached.remove(p.info.ID)
	return nil
}
