package workers

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// lease is what a worker knows this provider's sandboxes by. It is held by an open connection: if this process dies, the
// worker removes the sandboxes.
type lease struct {
	w    *worker
	id   string
	life context.Context //nolint:containedctx // the lease's own
	end  context.CancelCauseFunc
	held chan struct{} // closed when nothing holds it any more
	keys atomic.Int64

	mu    sync.Mutex
	acked []string // keys whose answers have arrived
}

var errReleased = errors.New("the lease was ended by this provider")

// newLease returns the worker's lease, and opens one if there is none.
func (w *worker) newLease(ctx context.Context) (*lease, error) {
	w.opening.Lock()
	defer w.opening.Unlock()
	w.mu.Lock()
	l := w.lease
	w.mu.Unlock()
	if l != nil {
		return l, nil
	}
	var opened api.Lease
	if err := w.call(ctx, &request{method: http.MethodPost, path: "/v1/leases", json: struct{}{}, again: true}, &opened); err != nil {
		return nil, err
	}
	l = &lease{w: w, id: opened.ID, held: make(chan struct{})}
	l.life, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	w.mu.Lock()
	w.lease = l
	w.mu.Unlock()
	go l.hold()
	return l, nil
}

// hold holds the lease by a connection until its life ends. If the worker cannot be reached for the time that a lease
// outlives its connection, the lease is lost.
func (l *lease) hold() {
	defer close(l.held)
	alive := time.Now()
	for l.life.Err() == nil {
		body, err := l.w.openStream(l.life, &request{method: http.MethodGet, path: "/v1/leases/" + l.id + "/hold"})
		if err == nil {
			lines := bufio.NewReader(body)
			for err == nil {
				alive = time.Now()
				_, err = lines.ReadSlice('\n')
			}
			body.Close()
		}
		if l.life.Err() != nil {
			return
		}
		if _, lost := asLost(err); isStale(err) || lost && time.Since(alive) > patience {
			l.lose(err)
			return
		}
		select {
		case <-time.After(pause):
		case <-l.life.Done():
		}
	}
}

// lose records that the lease is lost, with its sandboxes.
func (l *lease) lose(why error) {
	if l.life.Err() != nil {
		return
	}
	l.w.log.Warn("a worker is lost, with its sandboxes", "worker", l.w.name, "error", why)
	l.end(&fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the worker's sandboxes are lost: " + why.Error())})
	l.forget()
}

// forget makes the next sandbox open another lease.
func (l *lease) forget() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.lease == l {
		l.w.lease = nil
	}
}

// release ends the lease, and with it what it still has.
func (l *lease) release(ctx context.Context) {
	if l.life.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, cancelTime)
		defer cancel()
		if err := l.w.call(ctx, &request{method: http.MethodDelete, path: "/v1/leases/" + l.id}, nil); err != nil {
			l.w.log.Debug("a lease is not ended: it ends without its connection", "worker", l.w.name, "error", err)
		}
	}
	l.end(errReleased)
	l.forget()
	<-l.held
	l.w.http.CloseIdleConnections()
}

// newKey returns a key that no other request has.
func (l *lease) newKey() string { return l.id + "-" + strconv.FormatInt(l.keys.Add(1), 36) }

// noteAnswers makes a later request acknowledge a key.
func (l *lease) noteAnswers(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = append(l.acked, keys...)
}

func (l *lease) restoreKeys(keys []string) {
	if len(keys) > 0 {
		l.noteAnswers(keys...)
	}
}

// acknowledge takes keys for a request.
func (l *lease) acknowledge() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.acked), acknowledged)
	keys, l.acked = l.acked[:n:n], l.acked[n:]
	return keys
}

// isStale reports whether an error says that the lease is not there any more. What a lease lacks can be stale as well.
func isStale(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.answer.Code == api.CodeStale && r.answer.Op == "find lease"
}

// openStream is open for an answer with heartbeats: a read fails if nothing arrives for a while.
func (w *worker) openStream(ctx context.Context, r *request) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	quiet := time.AfterFunc(silence, func() { cancel(errors.New("nothing has arrived for " + silence.String())) })
	body, _, err := w.open(ctx, r)
	if err != nil {
		quiet.Stop()
		cancel(nil)
		return nil, err
	}
	quiet.Stop()
	return &stream{body, quiet, cancel, w.name, ctx}, nil
}

// stream is a body with heartbeats.
type stream struct {
	io.ReadCloser
	quiet  *time.Timer
	cancel context.CancelCauseFunc
	worker string
	ctx    context.Context //nolint:containedctx // of the request
}

// Read returns a lostError if the connection breaks.
func (s *stream) Read(p []byte) (int, error) {
	s.quiet.Reset(silence)
	defer s.quiet.Stop()
	n, err := s.ReadCloser.Read(p)
	if err != nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	if err != nil {
		err = &lostError{s.worker, err, true} // the end of what has no last line is no end
	}
	return n, err
}

func (s *stream) Close() error {
	s.quiet.Stop()
	defer s.cancel(nil)
	return s.ReadCloser.Close()
}
