package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"time"
	"weak"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

const (
	// maxHeld is how many bytes of answers a lease holds for repeats. The oldest are dropped first.
	maxHeld = 64 << 20
	// maxAnswers is how many bytes of answers all leases hold together. Beyond it, answers of more than smallBody bytes are not
	// held.
	maxAnswers = 1 << 30
	// maxKeys is how many keys a lease may have whose answers have not been acknowledged.
	maxKeys = 100_000
	// remembered is how long an acknowledged key is still known, for a repeat that is under way.
	remembered = time.Minute
)

// call is a request with a key.
type call struct {
	print  [sha256.Size]byte
	done   chan struct{} // closed at its end; the fields below do not change afterwards, but for answer
	cancel context.CancelFunc
	err    error
	size   int64
	// undo takes back what the request started. It is nil if that ended with the request. A key is remembered for longer
	// than what it started, so undo must not keep that in memory.
	undo func(context.Context) error

	answer any // nil when it was dropped
}

// answers are the requests with keys of a lease.
type answers struct {
	calls   map[string]*call
	held    []*call // ended, in the order of their ends
	bytes   int64   // of held
	forgets []forget
}

// forget is a key to forget at a time.
type forget struct {
	key string
	at  time.Time
}

var keyRest = regexp.MustCompile(`^-[A-Za-z0-9_-]{1,100}$`)

// checkKey checks that a key belongs to the lease.
func (l *lease) checkKey(key string) error {
	if len(key) <= len(l.id) || key[:len(l.id)] != l.id {
		return stale("the key does not begin with the lease's id: it is of another server or lease")
	}
	if !keyRest.MatchString(key[len(l.id):]) {
		return bad("the key is not the lease's id, a minus sign, and up to 100 letters, digits, minus signs or underscores")
	}
	return nil
}

var (
	errNotAgain = newAnswer(http.StatusGone, api.CodeStale, "repeat request",
		"the request has run, and its answer is no longer held; it does not run again")
	errPanicked = newAnswer(http.StatusInternalServerError, fumehood.CodeInfrastructure, "run request",
		"a defect of the server ended the request: see the server's log")
)

// once runs a request. With a key, the same request runs once: a repeat waits for the first one's end and gets its
// answer. It then goes on when the client's connection breaks, and is canceled by its key or with the lease. run may set
// the call's undo.
//
//nolint:contextcheck // with a key, a request outlives its connection
func once[T any](ctx context.Context, l *lease, key string, body []byte, run func(context.Context, *call) (*T, error)) (*output[*T], error) {
	if key == "" {
		ctx, cancel := within(ctx, l.life)
		defer cancel()
		got, err := run(ctx, &call{})
		return &output[*T]{got}, l.whole(err)
	}
	if err := l.checkKey(key); err != nil {
		return nil, err
	}
	print := sha256.Sum256(append([]byte(requestOf(ctx).target+"\n"), body...))
	c, first, err := l.begin(key, print)
	if err != nil {
		return nil, err
	}
	var own *T // the answer of a call that runs here, which may not be held
	if first != nil {
		own = runCall(first, l, c, run)
	}
	if err := wait(ctx, "wait for the request", c.done); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	got, ok := c.answer.(*T)
	switch {
	case own != nil:
		got = own
	case !ok:
		return nil, errNotAgain
	}
	return &output[*T]{got}, nil
}

// startOnce is once for a request that starts something, which the key's cancellation ends.
func startOnce[P interface {
	*T
	describe() *A
	end(ctx context.Context) error
}, A, T any](
	ctx context.Context, l *lease, key string, body []byte, run func(context.Context) (P, error),
) (*output[*A], error) {
	return once(ctx, l, key, body, func(ctx context.Context, c *call) (*A, error) {
		started, err := run(ctx)
		if err != nil {
			return nil, err
		}
		listed := weak.Make((*T)(started)) // by the lease, until it has ended
		c.undo = func(ctx context.Context) error {
			if p := P(listed.Value()); p != nil {
				return p.end(ctx)
			}
			return nil
		}
		return started.describe(), nil
	})
}

// runCall runs a call in the request's own goroutine: another one costs 35 us. A panic ends the call, and goes on.
func runCall[T any](ctx context.Context, l *lease, c *call, run func(context.Context, *call) (*T, error)) (got *T) {
	err := error(errPanicked)
	defer func() {
		c.cancel()
		l.finish(c, got, l.whole(err))
	}()
	got, err = run(ctx, c)
	return got
}

// wait waits until done is closed.
func wait(ctx context.Context, op string, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &fumehood.Error{Op: op, Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	}
}

// within returns a context that ends with ctx and with life.
func within(ctx, life context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// whole returns err, or why the lease has ended: what a command did while its sandbox was removed is no result.
func (l *lease) whole(err error) error {
	if err == nil && l.life.Err() != nil {
		return context.Cause(l.life)
	}
	return err
}

// begin returns the call of a key. For a new one, it also returns the context in which it runs.
func (l *lease) begin(key string, print [sha256.Size]byte) (c *call, first context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.calls[key]; c != nil {
		if none := [sha256.Size]byte{}; c.print != print && c.print != none && print != none { // none is a cancellation
			const why = "the key was used for another request"
			return nil, nil, newAnswer(http.StatusUnprocessableEntity, fumehood.CodeConfig, "repeat request", why)
		}
		return c, nil, nil
	}
	switch {
	case l.ended:
		return nil, nil, stale("the lease has ended")
	case len(l.calls) >= maxKeys:
		return nil, nil, &fumehood.Error{Op: "run request", Class: fumehood.ErrLimit, Err: errors.New("too many keys are not acknowledged"), Hint: "name keys whose answers have arrived in the header Idempotency-Received"}
	}
	c = &call{print: print, done: make(chan struct{})}
	first, c.cancel = context.WithCancel(l.life)
	l.calls[key] = c
	return c, first, nil
}

// finish records the end of a call.
func (l *lease) finish(c *call, answer any, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.err = err; err == nil && !l.ended {
		c.size = sizeOf(answer)
		if all := l.s.held.Add(c.size); all > l.s.opts.answers && c.size > smallBody {
			l.s.held.Add(-c.size)
		} else {
			c.answer, l.held, l.bytes = answer, append(l.held, c), l.bytes+c.size
		}
	}
	for len(l.held) > 1 && l.bytes > l.s.opts.held {
		l.drop(l.held[0])
		l.held = l.held[1:]
	}
	close(c.done)
}

// sizeOf returns about how many bytes an answer takes.
func sizeOf(answer any) int64 {
	switch r := answer.(type) {
	case *fumehood.Result:
		return outputSize(r.Stdout, r.Stderr)
	case *api.SessionResult:
		return outputSize(r.Stdout, r.Stderr, r.SetupStdout, r.SetupStderr)
	case *api.Process:
		size := outputSize()
		for _, arg := range r.Args {
			size += int64(len(arg))
		}
		return size
	case *api.Checkpoint:
		size := outputSize()
		for _, c := range r.Changes {
			size += changeSize + int64(len(c.Path)+len(c.Hunks))
		}
		return size
	}
	return outputSize()
}

// changeSize is about how many bytes a change of a checkpoint takes beside its texts.
const changeSize = 512

func outputSize(outputs ...fumehood.Output) int64 {
	size := int64(4 << 10) // of all else
	for _, out := range outputs {
		size += int64(len(out.Bytes))
	}
	return size
}

// drop drops the answer of an ended call, which stays known.
func (l *lease) drop(c *call) {
	if c.answer != nil {
		c.answer = nil
		l.bytes -= c.size
		l.s.held.Add(-c.size)
	}
}

// dropAnswers drops the answers of keys, and forgets keys that were acknowledged a while ago.
func (l *lease) dropAnswers(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, key := range keys {
		c := l.calls[key]
		if c == nil || c.err == nil && c.answer == nil { // it is unknown, runs, or was acknowledged before
			continue
		}
		l.drop(c)
		l.forgets = append(l.forgets, forget{key, now.Add(remembered)})
	}
	for len(l.forgets) > 0 && now.After(l.forgets[0].at) {
		delete(l.calls, l.forgets[0].key)
		l.forgets = l.forgets[1:]
	}
	l.held = slices.DeleteFunc(l.held, func(c *call) bool { return c.answer == nil })
}

// cancelKey cancels the request with a key, waits for its end, and takes back what it started.
func (l *lease) cancelKey(ctx context.Context, key string) error {
	if err := l.checkKey(key); err != nil {
		return err
	}
	canceled := &fumehood.Error{Op: "run request", Class: fumehood.ErrCanceled, Err: errors.New("canceled by its key")}
	c, first, err := l.begin(key, [sha256.Size]byte{})
	if err != nil {
		return err
	}
	c.cancel()
	if first != nil {
		l.finish(c, nil, canceled)
		return nil
	}
	if err := wait(ctx, "cancel request", c.done); err != nil {
		return err
	}
	l.mu.Lock()
	undo := c.undo
	c.undo = nil
	if undo != nil {
		c.err = canceled
	}
	l.drop(c)
	l.mu.Unlock()
	if undo == nil {
		return nil
	}
	return undo(context.WithoutCancel(ctx))
}
