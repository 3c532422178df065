package guest

import (
	"sync"

	"github.com/fumehood/fumehood/internal/wire"
)

// piece is a piece of input and the stream that it came from. Empty data marks the end of the input.
type piece struct {
	data []byte
	from *wire.Stream
}

// queue holds pieces of input. Its size is bounded by the flow control of the streams that they come from.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond
	pieces  []piece
	closed  bool
}

func newQueue() *queue {
	q := &queue{}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put adds a piece. It returns false if the queue is closed.
func (q *queue) put(p piece) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.pieces = append(q.pieces, p)
	q.changed.Signal()
	return true
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Signal()
}

// take waits for the next piece and returns it. It returns false when the queue is closed and empty.
func (q *queue) take() (piece, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pieces) == 0 {
		if q.closed {
			return piece{}, false
		}
		q.changed.Wait()
	}
	p := q.pieces[0]
	q.pieces = q.pieces[1:]
	return p, true
}
