package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

const (
	// maxProcesses is how many ended commands of a sandbox keep their results, and maxResults how many bytes of output and
	// arguments those may have. The oldest are forgotten first.
	maxProcesses = 256
	maxResults   = 64 << 20
)

// processes are the commands of a sandbox that were started.
type processes struct {
	joining sync.Mutex // held during join

	mu    sync.Mutex
	all   map[string]*process
	order []*process
	last  int
}

// process is a command that was started.
type process struct {
	id      string
	sandbox *held
	service string
	fumehood.Process
	output *stream
	size   int64 // of its description
}

func newProcesses() processes { return processes{all: map[string]*process{}} }

func (p *process) describe() *api.Process {
	info := p.Info()
	return &api.Process{
		ID: p.id, Args: api.Texts(info.Args), Started: info.Started, Ended: info.Ended, Detached: info.ID,
		Stdin: info.ID > 0 && provider.HasStdin(p.Process),
	}
}

// join adds the detached commands of a service that other processes have started, and forgets those that are gone.
func (h *held) join(ctx context.Context, svc fumehood.Service) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	if err := svc.RefreshProcesses(ctx); err != nil {
		return err
	}
	service, there := svc.ServiceInfo().Name, map[fumehood.Process]bool{}
	for _, proc := range svc.Processes() {
		there[proc] = true
	}
	h.mu.Lock()
	for _, p := range slices.Clone(h.order) {
		switch {
		case p.service != service || p.Info().ID == 0:
		case there[p.Process]:
			delete(there, p.Process)
		default:
			h.forget(p)
		}
	}
	h.mu.Unlock()
	for _, proc := range svc.Processes() {
		if !there[proc] {
			continue
		}
		out := newStream(proc, h.s.opts.grace, false)
		out.kept = [3]bool{fumehood.Stdout: true, fumehood.Stderr: true}
		go out.pump(h.s.life, true) //nolint:contextcheck // it outlives the request
		h.add(service, proc, out)
	}
	return nil
}

func (p *process) end(ctx context.Context) error { return p.Kill(ctx) }

// add lists a command that runs.
func (h *held) add(service string, proc fumehood.Process, out *stream) *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	p := &process{id: strconv.Itoa(h.last), sandbox: h, service: service, Process: proc, output: out}
	p.size = sizeOf(p.describe())
	h.all[p.id] = p
	h.order = append(h.order, p)
	var ended []*process
	size := int64(0)
	for _, p := range slices.Backward(h.order) {
		if res := p.output.result(); res != nil {
			ended, size = append(ended, p), size+sizeOf(res)+p.size
			if len(ended) > maxProcesses || size > maxResults && len(ended) > 1 {
				h.forget(p)
			}
		}
	}
	return p
}

// forget removes a command from the list. The caller has the lock.
func (h *held) forget(p *process) {
	delete(h.all, p.id)
	h.order = slices.DeleteFunc(h.order, func(o *process) bool { return o == p })
}

// process returns a command by its id.
func (h *held) process(id string) (*process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.all[id]; p != nil {
		return p, nil
	}
	return nil, &fumehood.Error{Op: "find command " + id, Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox has none with this id: it was not started, or ended and was forgotten")}
}

// list returns the commands of a service, in start order.
func (h *held) list(service string) []*api.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []*api.Process{}
	for _, p := range h.order {
		if p.service == service {
			all = append(all, p.describe())
		}
	}
	return all
}

// window is how many bytes of output may wait for a reader before the command does. As many are held that were sent
// before, for a reader that comes back after its connection broke.
const window = 1 << 20

// maxEvent bounds the bytes of output in an event that has those of several pieces.
const maxEvent = 64 << 10

// stream distributes a command's output. While a reader is there that has not taken a window of output, the command
// blocks. It also blocks for a while if a reader was announced or has left, and may come back; its timeout then stands
// still. Otherwise nothing blocks it. What is no longer held is read from the end of the output that the command's result
// keeps, and what that lacks is skipped.
type stream struct {
	process fumehood.Process
	kept    [3]bool // by stream: the result keeps some of it

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	pieces  []piece
	first   int // number of the first piece held
	size    int // bytes of pieces
	added   int // bytes of all pieces since the start
	taken   int // bytes of all pieces that the last reader had taken when it left
	readers map[*reader]bool
	left    time.Time // when the last reader left, or was announced; zero if none was expected yet
	// patience is how long a full window then blocks the command.
	patience time.Duration
	ended    *fumehood.Result
	err      error // the end, if it is not known how the command ended
}

type piece struct {
	stream fumehood.Stream
	offset int64
	data   []byte
}

// reader is a connection that reads a stream.
type reader struct {
	at    int // number of its next piece
	taken int // bytes of all pieces before
}

// newStream returns the stream of a command. expected announces a reader.
func newStream(p fumehood.Process, patience time.Duration, expected bool) *stream {
	s := &stream{process: p, patience: patience, changed: make(chan struct{}), readers: map[*reader]bool{}}
	if expected {
		s.left = time.Now()
	}
	return s
}

// notify wakes all who wait. The caller has the lock.
func (s *stream) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) result() *fumehood.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// pump takes the output of a command until its end. Detached commands have no events: their output is followed.
func (s *stream) pump(ctx context.Context, detached bool) {
	p := s.process
	if detached {
		var both sync.WaitGroup
		for _, from := range []fumehood.Stream{fumehood.Stdout, fumehood.Stderr} {
			both.Go(func() {
				for chunk, err := range p.Follow(ctx, from, 0) {
					if err != nil {
						return // Wait has the reason
					}
					s.add(from, chunk.Offset, chunk.Data, false)
				}
			})
		}
		both.Wait()
		res, err := p.Wait(ctx)
		s.end(res, err)
		return
	}
	next := map[fumehood.Stream]int64{} // offsets
	for ev, err := range p.Events() {
		switch {
		case err != nil:
			s.end(nil, err)
		case ev.Result != nil:
			s.end(ev.Result, nil)
		default:
			offset := next[ev.Stream] + ev.Skipped
			next[ev.Stream] = offset + int64(len(ev.Data))
			s.add(ev.Stream, offset, ev.Data, true)
		}
	}
	s.end(nil, &fumehood.Error{Op: "follow command", Class: fumehood.ErrInfrastructure, Err: errors.New("its events ended without an end")}) // if it has none yet
}

func (s *stream) end(res *fumehood.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil && s.err == nil {
		s.ended, s.err = res, err
		s.notify()
	}
}

// add adds output. If block is set, it waits for readers.
func (s *stream) add(from fumehood.Stream, offset int64, data []byte, block bool) {
	if len(data) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resume := func() {}
	defer func() { resume() }()
	for block && s.waiting() > 0 && s.waiting()+len(data) > window {
		resume()
		if len(s.readers) == 0 {
			resume = provider.PauseTimeout(s.process)
		}
		changed, wait := s.changed, min(beat, s.patience)
		s.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(wait): // the patience may be over
		}
		s.mu.Lock()
	}
	s.pieces, s.size, s.added = append(s.pieces, piece{from, offset, data}), s.size+len(data), s.added+len(data)
	for s.size > 2*window && len(s.pieces) > 1 {
		s.size -= len(s.pieces[0].data)
		s.pieces[0] = piece{}
		s.pieces, s.first = s.pieces[1:], s.first+1
	}
	s.notify()
}

// waiting returns how many bytes wait for a reader, who is there or may come. The caller has the lock.
func (s *stream) waiting() int {
	taken := s.added
	for r := range s.readers {
		taken = min(taken, r.taken)
	}
	if len(s.readers) == 0 && time.Since(s.left) < s.patience {
		taken = s.taken
	}
	return s.added - taken
}

// attach adds a reader.
func (s *stream) attach() *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &reader{at: s.first, taken: s.added - s.size}
	s.readers[r] = true
	return r
}

func (s *stream) detach(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
	s.left, s.taken = time.Now(), r.taken
	s.notify()
}

// take returns the next piece for a reader, with those that follow it in its stream, or the end. If there is neither, changed is closed when there may be.
func (s *stream) take(r *reader) (p piece, end *api.Event, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.at < s.first {
		r.at, r.taken = s.first, s.added-s.size
	}
	if r.at < s.first+len(s.pieces) {
		p = s.pieces[r.at-s.first]
		r.at, r.taken = r.at+1, r.taken+len(p.data)
		for r.at < s.first+len(s.pieces) { // an event costs more than its bytes
			next := s.pieces[r.at-s.first]
			if next.stream != p.stream || next.offset != p.offset+int64(len(p.data)) || len(p.data)+len(next.data) > maxEvent {
				break
			}
			p.data = append(slices.Clip(p.data), next.data...)
			r.at, r.taken = r.at+1, r.taken+len(next.data)
		}
		s.notify()
		return p, nil, nil
	}
	switch {
	case s.ended != nil:
		end = &api.Event{Type: api.EventEnd, Result: s.ended}
	case s.err != nil:
		end = &api.Event{Type: api.EventError, Error: new(errorOf(s.err))}
	}
	return piece{}, end, s.changed
}

// catchUp sends output that no piece has any more, from an offset until another one that was already reached, as far as
// the command's result keeps it.
func (s *stream) catchUp(ctx context.Context, stream fumehood.Stream, from, until int64, output func(fumehood.Stream, int64, []byte)) {
	if from >= until || !s.kept[stream] {
		return
	}
	for chunk, err := range s.process.Follow(ctx, stream, from) {
		if err != nil || chunk.Offset >= until {
			return
		}
		data := chunk.Data[:min(int64(len(chunk.Data)), until-chunk.Offset)]
		if output(stream, chunk.Offset, data); chunk.Offset+int64(len(data)) >= until {
			return
		}
	}
}

// send sends the output from offsets on, and the end. It returns when that is sent, or ctx has ended.
func (s *stream) send(ctx context.Context, from map[fumehood.Stream]int64, send func(any)) {
	r := s.attach()
	defer s.detach(r)
	output := func(stream fumehood.Stream, offset int64, data []byte) {
		send(api.Event{Type: api.EventOutput, Stream: stream.String(), Offset: offset, Data: data})
		from[stream] = offset + int64(len(data))
	}
	for ctx.Err() == nil {
		p, end, changed := s.take(r)
		switch {
		case p.data != nil:
			s.catchUp(ctx, p.stream, from[p.stream], p.offset, output)
			skip := min(max(from[p.stream]-p.offset, 0), int64(len(p.data)))
			if p.data = p.data[skip:]; len(p.data) > 0 {
				output(p.stream, p.offset+skip, p.data)
			}
		case end != nil:
			if end.Result != nil {
				for stream, total := range map[fumehood.Stream]int64{fumehood.Stdout: end.Result.Stdout.Total, fumehood.Stderr: end.Result.Stderr.Total} {
					s.catchUp(ctx, stream, from[stream], total, output)
					if from[stream] < total {
						output(stream, total, nil) // its offset shows what was skipped
					}
				}
			}
			send(end)
			return
		default:
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// checkCaps limits the memory that a command's output takes in the server.
func checkCaps(stdout, stderr int64) error {
	const most = 64 << 20
	if stdout > most || stderr > most {
		return &fumehood.Error{Op: opRead, Class: fumehood.ErrLimit, Err: fmt.Errorf("a result keeps at most %d bytes of a stream", most), Hint: "write to a file, or follow the events"}
	}
	return nil
}
