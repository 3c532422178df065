package guest

import "sync"

// queue holds pieces of input. The flow control of the stream that they come from bounds it.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond
	pieces  [][]byte
	closed  bool
}

func newQueue() *queue {
	q := &queue{}
	q.changed = sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(p []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pieces = append(q.pieces, p)
	q.changed.Signal()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Signal()
}

// take returns the next piece, waiting for it; false when the queue is closed and empty.
func (q *queue) take() ([]byte, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pieces) == 0 {
		if q.closed {
			return nil, false
		}
		q.changed.Wait()
	}
	p := q.pieces[0]
	q.pieces = q.pieces[1:]
	return p, true
}
