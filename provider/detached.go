package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fumehood/fumehood"

	"github.com/fumehood/fumehood/internal/guest/ring"
)

// detached holds the detached commands of one service.
type detached struct {
	joining  sync.Mutex // held during a RefreshProcesses
	mu       sync.Mutex
	last     int
	starting int // number of commands being started
	byID     map[int]*process
}

// reserve assigns a number to a command that is about to start. It fails if there are too many.
func (d *detached) reserve() (id int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byID)+d.starting >= fumehood.MaxDetached {
		return 0, &fumehood.Error{
			Class: fumehood.ErrLimit, Err: fmt.Errorf("the service has reached its limit of %d detached commands", fumehood.MaxDetached),
			Hint: "forget commands that have ended",
		}
	}
	d.starting++
	d.last++
	return d.last, nil
}

// release undoes reserve.
func (d *detached) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting--
}

// list lists a command for which reserve was called. If the sandbox keeps the command, it has the sandbox's number.
func (d *detached) list(p *process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting--
	if be, ok := p.be.(DetachedBackend); ok {
		p.info.ID = be.ID()
	}
	d.byID[p.info.ID] = p
}

func (d *detached) forget(id int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byID, id)
}

func (s *service) Processes() []fumehood.Process {
	s.detached.mu.Lock()
	defer s.detached.mu.Unlock()
	var all []fumehood.Process
	for _, id := range slices.Sorted(maps.Keys(s.detached.byID)) {
		all = append(all, s.detached.byID[id])
	}
	return all
}

func (s *service) Process(id int) (fumehood.Process, error) {
	s.detached.mu.Lock()
	defer s.detached.mu.Unlock()
	if p := s.detached.byID[id]; p != nil {
		return p, nil
	}
	return nil, &fumehood.Error{Op: "look up process", Service: s.info.Name, Class: fumehood.ErrConfig, Err: fmt.Errorf("there is no detached command %d", id)}
}

func (p *process) Info() fumehood.ProcessInfo {
	info := p.info
	info.Args = slices.Clone(info.Args)
	info.Ended = info.Ended || p.isOver()
	return info
}

func (p *process) Forget(ctx context.Context) error {
	const op = "forget"
	if !p.Info().Ended {
		return &fumehood.Error{Op: op, Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: errors.New("the command has not ended"), Hint: "kill it first"}
	}
	if be, ok := p.be.(DetachedBackend); ok {
		if err := be.Forget(ctx); err != nil {
			return classify(ctx, err, op, p.svc.info.Name, "")
		}
	}
	p.svc.detached.forget(p.info.ID)
	return nil
}

func (s *service) RefreshProcesses(ctx context.Context) error {
	const op = "look up processes"
	if err := s.sb.check(op, s.info.Name); err != nil {
		return err
	}
	be, ok := s.be.(Reattacher)
	if !ok {
		return &fumehood.Error{Op: op, Service: s.info.Name, Class: fumehood.ErrUnsupported, Err: errors.New("this provider's detached commands end with the process that started them")}
	}
	s.detached.joining.Lock()
	defer s.detached.joining.Unlock()
	ended := s.detached.endedIDs() // looked up before the request: the answer lacks commands started meanwhile
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
			s.detached.forget(id)
		}
	}
	return nil
}

// join lists a command that another process started.
func (s *service) join(ctx context.Context, be Reattacher, info DetachedInfo) error {
	p := &process{
		svc: s, stdin: info.Stdin, done: make(chan struct{}),
		info: fumehood.ProcessInfo{ID: info.ID, Args: info.Args, Started: info.Started, Ended: info.Ended},
	}
	p.out[fumehood.Stdout], p.out[fumehood.Stderr] = ring.NewTail(fumehood.DefaultOutputCap), ring.NewTail(fumehood.DefaultOutputCap)
	found, err := be.Join(ctx, info, p.sink)
	if err != nil {
		return err
	}
	found.OnGap(p.gap)
	p.be = found
	ctx = context.WithoutCancel(ctx)
	p.look = sync.OnceFunc(func() { go p.supervise(ctx, fumehood.Cmd{StdinPipe: true}) })
	s.detached.mu.Lock()
	defer s.detached.mu.Unlock()
	s.detached.byID[info.ID] = p
	return nil
}

// has reports whether a command is listed and reachable.
func (d *detached) has(id int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.byID[id]
	return p != nil && !p.outOfReach()
}

// endedIDs returns the numbers of ended commands.
func (d *detached) endedIDs() (ids []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, p := range d.byID {
		if p.Info().Ended {
			ids = append(ids, id)
		}
	}
	return ids
}
