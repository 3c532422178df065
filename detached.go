package fumehood

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/ring"
)

// MaxDetached is how many detached commands a service has at most, running or ended and not forgotten.
const MaxDetached = 256

// ProcessInfo describes a command that Start handed over.
type ProcessInfo struct {
	ID      int       // the number among its service's detached commands, from 1 on; 0 for one that is not detached
	Args    []string  // the program and its arguments; of what another process started, the first 4 KiB of them
	Started time.Time // when it was handed over, on the host's clock
	Ended   bool      // its end is known: Wait returns at once
}

// detached are the detached commands of one service. The zero value is empty.
type detached struct {
	joining  sync.Mutex // held by a RefreshProcesses
	mu       sync.Mutex
	last     int
	starting int // how many are being started
	byID     map[int]*Process
}

// reserve takes a number for a command that is to be started, and fails when there are too many.
func (d *detached) reserve() (id int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byID)+d.starting >= MaxDetached {
		return 0, &Error{
			Class: ErrLimit, Err: fmt.Errorf("the service has %d detached commands, as many as it may", MaxDetached),
			Hint: "forget those that have ended, see Process.Forget",
		}
	}
	d.starting++
	d.last++
	return d.last, nil
}

// release gives back what was reserved.
func (d *detached) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting--
}

// list lists a command that was reserved. One that the sandbox keeps has its number there.
func (d *detached) list(p *Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting--
	if be, ok := p.be.(DetachedBackend); ok {
		p.info.ID = be.ID()
	}
	d.put(p)
}

// put lists a command; d.mu is held.
func (d *detached) put(p *Process) {
	if d.byID == nil {
		d.byID = map[int]*Process{}
	}
	d.byID[p.info.ID] = p
}

func (d *detached) remove(id int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byID, id)
}

// Processes lists the service's detached commands, those that run and those that have ended, until they
// are forgotten, in the order in which they were started. The list stays when the sandbox is closed. What
// other processes have started in a kept sandbox is listed after a RefreshProcesses.
func (s *Service) Processes() []*Process {
	s.detached.mu.Lock()
	defer s.detached.mu.Unlock()
	var all []*Process
	for _, p := range s.detached.byID {
		all = append(all, p)
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
func (p *Process) Forget(ctx context.Context) error {
	const op = "forget"
	if !p.Info().Ended {
		return &Error{Op: op, Service: p.svc.info.Name, Class: ErrConfig, Err: errors.New("the command has not ended"), Hint: "kill it first"}
	}
	if be, ok := p.be.(DetachedBackend); ok {
		if err := be.Forget(ctx); err != nil {
			return classify(ctx, err, op, p.svc.info.Name, "")
		}
	}
	p.svc.detached.remove(p.info.ID)
	return nil
}

// RefreshProcesses looks up which detached commands a kept sandbox has, so that Processes lists those too that other
// processes have started, and no more those that others have forgotten. They can be followed, awaited, written
// to, signaled, killed and forgotten as this process's own; what is held of their output is in the sandbox, and
// their Results keep at most DefaultOutputCap of it. A sandbox that is not kept, or a provider without this, is
// an ErrUnsupported.
func (s *Service) RefreshProcesses(ctx context.Context) error {
	const op = "look up processes"
	if err := s.sb.check(op, s.info.Name); err != nil {
		return err
	}
	be, ok := s.be.(Rejoiner)
	if !ok {
		return &Error{Op: op, Service: s.info.Name, Class: ErrUnsupported, Err: errors.New("this provider's detached commands end with the process that started them")}
	}
	s.detached.joining.Lock()
	defer s.detached.joining.Unlock()
	ended := s.detached.ended() // before it is asked: what is started meanwhile is not in the answer
	infos, err := be.Detached(ctx)
	if err != nil {
		return classify(ctx, err, op, s.info.Name, "")
	}
	there := map[int]bool{}
	for _, info := range infos {
		there[info.ID] = true
		if s.detached.has(info.ID) {
			continue
		}
		if err := s.join(ctx, be, info); err != nil {
			return classify(ctx, err, op, s.info.Name, "")
		}
	}
	for _, id := range ended {
		if !there[id] {
			s.detached.remove(id)
		}
	}
	return nil
}

// join lists a command that another process has started.
func (s *Service) join(ctx context.Context, be Rejoiner, info DetachedInfo) error {
	p := &Process{
		svc: s, stdin: info.Stdin, done: make(chan struct{}),
		info: ProcessInfo{ID: info.ID, Args: info.Args, Started: info.Started, Ended: info.Ended},
	}
	p.out[Stdout], p.out[Stderr] = ring.NewTail(DefaultOutputCap), ring.NewTail(DefaultOutputCap)
	found, err := be.Join(ctx, info, p.sink)
	if err != nil {
		return err
	}
	found.Gaps(p.gap)
	p.be = found
	ctx = context.WithoutCancel(ctx)
	p.look = sync.OnceFunc(func() { go p.supervise(ctx, Cmd{StdinPipe: true}) })
	s.detached.mu.Lock()
	defer s.detached.mu.Unlock()
	s.detached.put(p)
	return nil
}

// has reports whether a command is listed, and in reach.
func (d *detached) has(id int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.byID[id]
	return p != nil && !p.outOfReach()
}

// ended are the numbers of those that have ended.
func (d *detached) ended() (ids []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, p := range d.byID {
		if p.Info().Ended {
			ids = append(ids, id)
		}
	}
	return ids
}
