package provider

import (
	"bytes"
	"sync"

	"github.com/fumehood/fumehood"
)

// feedSize is how many bytes of output a process holds for a current or future listener.
const feedSize = 1 << 20

// feed passes output from the backend to at most one listener. When it is full, it blocks the program if there is a
// listener. Otherwise it drops the oldest output and reports that to the next listener.
type feed struct {
	mu       sync.Mutex
	changed  *sync.Cond
	chunks   []fumehood.Event
	size     int
	skipped  [3]int64 // by Stream
	attached bool
	expected bool // a listener has been announced and was not there yet
	released bool // never block again: the command is being killed
	closed   bool
}

// newFeed returns a feed. expected announces a listener, for which the program waits.
func newFeed(expected bool) *feed {
	f := &feed{expected: expected}
	f.changed = sync.NewCond(&f.mu)
	return f
}

func (f *feed) attach() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached {
		return false
	}
	f.attached, f.expected = true, false
	return true
}

func (f *feed) detach()  { f.set(&f.attached, false) }
func (f *feed) release() { f.set(&f.released, true) }
func (f *feed) close()   { f.set(&f.closed, true) }

func (f *feed) set(state *bool, to bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*state = to
	f.changed.Broadcast()
}

const (
	// smallChunks is the size in bytes up to which small chunks of one stream are merged. Without it, a million
	// pending chunks would take many times the memory of their content.
	smallChunks = 4 << 10
	// feedChunks is the maximum number of chunks held: a program may write single bytes to both streams in turn.
	feedChunks = 16 << 10
)

// full reports whether the feed holds its maximum, or the maximum plus extra bytes or chunks. f.mu is held.
func (f *feed) full(extra int) bool {
	return f.size >= feedSize+extra || len(f.chunks) >= feedChunks+extra
}

// blocks reports whether the program waits rather than output being lost. f.mu is held.
func (f *feed) blocks() bool { return (f.attached || f.expected) && !f.released }

func (f *feed) put(s fumehood.Stream, p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.blocks() && f.full(0) {
		f.changed.Wait()
	}
	if last := len(f.chunks) - 1; last >= 0 && f.chunks[last].Stream == s && len(f.chunks[last].Data)+len(p) <= smallChunks {
		f.chunks[last].Data = append(f.chunks[last].Data, p...)
	} else {
		f.chunks = append(f.chunks, fumehood.Event{Stream: s, Data: bytes.Clone(p)})
	}
	f.size += len(p)
	for f.full(1) && !f.blocks() && len(f.chunks) > 1 {
		old := f.chunks[0]
		f.chunks = f.chunks[1:]
		f.size -= len(old.Data)
		f.skipped[old.Stream] += int64(len(old.Data))
	}
	f.changed.Broadcast()
}

// take waits for the next event of output and returns it; false at the end.
func (f *feed) take() (fumehood.Event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.chunks) == 0 {
		if f.closed {
			return f.untold()
		}
		f.changed.Wait()
	}
	ev := f.chunks[0]
	f.chunks = f.chunks[1:]
	f.size -= len(ev.Data)
	ev.Skipped, f.skipped[ev.Stream] = f.skipped[ev.Stream], 0
	f.changed.Broadcast()
	return ev, true
}

// untold returns an event for a stream that dropped bytes and has no later output to report them with.
func (f *feed) untold() (fumehood.Event, bool) {
	for _, s := range []fumehood.Stream{fumehood.Stdout, fumehood.Stderr} {
		if n := f.skipped[s]; n > 0 {
			f.skipped[s] = 0
			return fumehood.Event{Stream: s, Skipped: n}, true
		}
	}
	return fumehood.Event{}, false
}
