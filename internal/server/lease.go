package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

const (
	// grace is how long a lease outlives its last connection or request.
	grace = 5 * time.Second
	// beat is the time between two lines of a connection that holds a lease, and of a command's events.
	beat = 2 * time.Second
	// maxLeases limits the leases of a server.
	maxLeases = 10_000
)

// lease is what a client holds sandboxes, running commands and answers by. It is held by its open connections and
// running requests, and ends when there has been none for the grace.
type lease struct {
	s  *Server
	id string // the server's instance, a minus sign, and a secret without one
	// life ends with the lease. Commands run in it, so that they outlive the requests that started them.
	life    context.Context //nolint:containedctx // the lease's own
	cancel  context.CancelCauseFunc
	removed chan struct{} // closed when all its sandboxes are removed

	mu       sync.Mutex
	holders  uses
	ended    bool
	boxes    map[string]*held
	idled    []idled // the last ones that were removed
	sessions map[string]*openSession
	runs     map[string]*evaluation
	prepared map[string]bool // IDs of images that were prepared for it
	records  map[string]*record
	recorded []string       // the names of records, in the order of their sandboxes' starts
	starting sync.WaitGroup // starts of what the lease owns, and its streams
	answers
}

var errLeaseEnded = &fumehood.Error{Op: "hold lease", Class: fumehood.ErrCanceled, Err: context.Canceled, Hint: "hold the lease by a connection or heartbeats"}

func (s *Server) newLease() (*lease, error) {
	l := &lease{
		s: s, id: s.instance + "-" + random(16), removed: make(chan struct{}), answers: answers{calls: map[string]*call{}},
		boxes: map[string]*held{}, sessions: map[string]*openSession{}, runs: map[string]*evaluation{}, prepared: map[string]bool{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, &fumehood.Error{Op: "open lease", Class: fumehood.ErrUnavailable, Err: http.ErrServerClosed}
	}
	if len(s.leases) >= maxLeases {
		return nil, &fumehood.Error{Op: "open lease", Class: fumehood.ErrLimit, Err: fmt.Errorf("there are %d leases", maxLeases)}
	}
	l.life, l.cancel = context.WithCancelCause(s.life)
	s.leases[l.id] = l
	l.mu.Lock() // expire reads the timer
	defer l.mu.Unlock()
	l.holders.watch(s.opts.grace, l.expire)
	return l, nil
}

// hold finds a lease and holds it until release is called, which is never nil.
func (s *Server) hold(id string) (l *lease, release func(), err error) {
	none := func() {}
	switch instance, _, _ := strings.Cut(id, "-"); {
	case id == "":
		return nil, none, bad("the header Fumehood-Lease is missing: open a lease by POST /v1/leases")
	case instance != s.instance:
		return nil, none, stale("the lease is not of this server, which may have been restarted")
	}
	s.mu.Lock()
	l = s.leases[id]
	s.mu.Unlock()
	if l == nil {
		return nil, none, stale("the lease has ended")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, none, stale("the lease has ended")
	}
	l.holders.enter()
	return l, sync.OnceFunc(l.release), nil
}

func (l *lease) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders.leave(); l.ended {
		l.holders.timer.Stop()
	}
}

// end ends the lease: it kills its commands, and removes its sandboxes in the background.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked()
}

// expire ends the lease when its timer has fired, unless it is held again.
func (l *lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders.number == 0 {
		l.endLocked()
	}
}

// endLocked is end for callers that have the lock.
func (l *lease) endLocked() {
	if l.ended {
		return
	}
	l.ended = true
	l.holders.timer.Stop()
	l.cancel(errLeaseEnded)
	go l.remove(context.WithoutCancel(l.life))
}

// beginStart begins the start of something that the lease will own. done must be called when the lease has it.
func (l *lease) beginStart() (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, stale("the lease has ended")
	}
	l.starting.Add(1)
	return l.starting.Done, nil
}

// own opens a session or starts an evaluation, of which there may be as many as sandboxes, and adds it to all, which is
// sessions or runs.
func own[T any](l *lease, all map[string]*T, open func() (id string, opened *T, err error)) (*T, error) {
	done, err := l.beginStart()
	if err != nil {
		return nil, err
	}
	defer done()
	if most := l.s.opts.Limits.Sandboxes; !enter(&l.s.owned, most) {
		const hint = "close some, or start the server with a higher --max-sandboxes"
		return nil, limitError("start", "max-sandboxes", hint, "there are %d sessions and evaluations", most)
	}
	var id string
	var opened *T
	defer func() {
		if opened == nil {
			l.s.owned.Add(-1)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		all[id] = opened
	}()
	id, opened, err = open()
	return opened, err
}

// lookup returns what has an id.
func lookup[T any](mu *sync.Mutex, all map[string]*T, kind, id string) (*T, error) {
	mu.Lock()
	defer mu.Unlock()
	if found := all[id]; found != nil {
		return found, nil
	}
	return nil, missing(kind, id)
}

// list describes the lease's sessions or evaluations, by their ids.
func list[A any, T interface{ describe() A }](l *lease, all map[string]T) []A {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []A{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		found = append(found, all[id].describe())
	}
	return found
}

// disown forgets a session or an evaluation that has ended.
func disown[T any](l *lease, all map[string]*T, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all[id] != nil { // else the lease's end counts it
		delete(all, id)
		l.s.owned.Add(-1)
	}
}

// remove ends what the lease owns. The server knows the lease until then, and waits for it when it stops.
func (l *lease) remove(ctx context.Context) {
	defer close(l.removed)
	defer func() {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		delete(l.s.leases, l.id)
	}()
	l.starting.Wait()
	var all sync.WaitGroup
	all.Go(func() { endAll(ctx, l, "session", l.sessions) })
	all.Go(func() { endAll(ctx, l, "evaluation", l.runs) })
	all.Wait() // they remove their own sandboxes
	endAll(ctx, l, "sandbox", l.boxes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s.sandboxes.Add(-int64(len(l.boxes))) // those that could not be removed
	l.s.owned.Add(-int64(len(l.sessions) + len(l.runs)))
	clear(l.boxes)
	clear(l.sessions)
	clear(l.runs)
	for _, id := range slices.Clone(l.recorded) {
		l.dropRecord(id)
	}
	for _, c := range l.held {
		l.drop(c)
	}
}

// endAll ends all sandboxes, sessions or evaluations of an ended lease at the same time.
func endAll[T interface {
	end(ctx context.Context) error
}](ctx context.Context, l *lease, kind string, owned map[string]T) {
	l.mu.Lock()
	owned = maps.Clone(owned) // requests that still run may remove some
	l.mu.Unlock()
	var all sync.WaitGroup
	for id, one := range owned {
		all.Go(func() {
			if err := one.end(ctx); err != nil {
				l.s.opts.Logger.Warn("a "+kind+" of an ended lease was not removed", kind, id, "error", err)
			}
		})
	}
	all.Wait()
}

// LeaseInput is the input of requests about a lease.
type LeaseInput struct {
	Lease string `path:"lease" maxLength:"100" doc:"the lease's id"`
}

// Leased is the input of all requests about sandboxes.
type Leased struct {
	Lease    string `header:"Fumehood-Lease" doc:"the lease that the request belongs to"`
	Received string `header:"Idempotency-Received" doc:"comma-separated keys whose answers have arrived, so that the server may drop them"`
}

// Keyed is the input of requests that run once.
type Keyed struct {
	Leased
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"name of the request: the lease's id, a minus sign and any letters or digits. The same request with the same key runs once, and gets the same answer."`
	RawBody []byte
}

// Once is the same for requests about what the lease has.
type Once struct {
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"as to create a sandbox"`
	RawBody []byte
}

// withLease makes a handler that gets the request's lease.
func withLease[I interface{ ackedKeys() []string }, O any](f func(context.Context, *lease, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		r := requestOf(ctx)
		if r.unheld != nil {
			return nil, r.unheld
		}
		if keys := (*in).ackedKeys(); len(keys) > 0 {
			r.lease.dropAnswers(keys)
		}
		return f(ctx, r.lease, in)
	}
}

// about is the input of requests whose path names a T.
type about[T any] interface {
	ackedKeys() []string
	find(ctx context.Context, l *lease) (T, error)
}

// on makes a handler that gets what the request's path names: a sandbox, a service, a command, a session ...
func on[T any, I about[T], O any](
	f func(context.Context, *lease, T, *I) (*O, error),
) func(context.Context, *I) (*O, error) {
	return withLease(func(ctx context.Context, l *lease, in *I) (*O, error) {
		found, err := (*in).find(ctx, l)
		if err != nil {
			return nil, err
		}
		return f(ctx, l, found, in)
	})
}

// describing makes a handler that describes what the request's path names.
func describing[I about[T], T interface{ describe() *A }, A any]() func(context.Context, *I) (*output[*A], error) {
	return on(func(_ context.Context, _ *lease, found T, _ *I) (*output[*A], error) {
		return &output[*A]{found.describe()}, nil
	})
}

// ending makes a handler that ends what the request's path names.
func ending[I about[T], T interface {
	end(ctx context.Context) error
}]() func(context.Context, *I) (*struct{}, error) {
	return on(func(ctx context.Context, _ *lease, found T, _ *I) (*struct{}, error) {
		return nil, found.end(ctx)
	})
}

func (l Leased) ackedKeys() []string {
	if l.Received == "" {
		return nil
	}
	return strings.Split(l.Received, ",")
}

// output is an answer in JSON.
type output[T any] struct{ Body T }

func (s *Server) registerLeases() {
	register(s, op{http.MethodGet, "/v1/version", "get-version", "Describe the server", "Server"}, func(_ context.Context, _ *struct{}) (*output[api.Version], error) {
		return &output[api.Version]{api.Version{Version: s.opts.Version, API: api.Number, Instance: s.instance}}, nil
	})
	register(s, op{http.MethodPost, "/v1/leases", "open-lease", "Open a lease", "Leases"}, func(_ context.Context, _ *struct{ Body struct{} }) (*output[api.Lease], error) {
		l, err := s.newLease()
		if err != nil {
			return nil, err
		}
		return &output[api.Lease]{api.Lease{ID: l.id, Grace: float64(s.opts.grace / time.Millisecond)}}, nil
	})
	register(s, op{http.MethodPost, "/v1/leases/{lease}/renew", "renew-lease", "Send a heartbeat, as any request with the lease is", "Leases"}, func(_ context.Context, in *LeaseInput) (*struct{}, error) {
		_, release, err := s.hold(in.Lease)
		release()
		return nil, err
	})
	registerStream(s, op{http.MethodGet, "/v1/leases/{lease}/hold", "hold-lease", "Hold a lease while the connection is open. Each line is an event of the type heartbeat", "Leases"}, typeLines, api.Event{}, func(ctx context.Context, in *LeaseInput) (*huma.StreamResponse, error) {
		l, release, err := s.hold(in.Lease)
		if err != nil {
			return nil, err
		}
		heartbeat := api.Event{Type: api.EventHeartbeat}
		return follow(ctx, l.life, heartbeat, func(ctx context.Context, send func(any)) {
			defer release()
			send(heartbeat)
			<-ctx.Done()
		}), nil
	})
	register(s, op{http.MethodDelete, "/v1/leases/{lease}", "end-lease", "End a lease, and return when its sandboxes are removed", "Leases"}, func(ctx context.Context, in *LeaseInput) (*struct{}, error) {
		l, release, err := s.hold(in.Lease)
		if err != nil {
			return nil, err
		}
		defer release()
		l.end() //nolint:contextcheck // it goes on when the request ends
		return nil, wait(ctx, "end lease", l.removed)
	})
	register(s, op{http.MethodDelete, "/v1/leases/{lease}/keys/{key}", "cancel-request", "Cancel a request by its key, and undo what it started. A request that arrives later does not run", "Leases"}, func(ctx context.Context, in *struct {
		LeaseInput
		Key string `path:"key" maxLength:"200"`
	},
	) (*struct{}, error) {
		l, release, err := s.hold(in.Lease)
		if err != nil {
			return nil, err
		}
		defer release()
		return nil, l.cancelKey(ctx, in.Key)
	})
}
