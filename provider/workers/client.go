package workers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

const (
	// patience is how long a request is repeated whose answer was lost: as long as a lease outlives its connection.
	patience = 5 * time.Second
	// pause is the time between repeats, of which the first comes at once.
	pause = 100 * time.Millisecond
	// dialTime bounds a connection's start.
	dialTime = 5 * time.Second
	// silence is how long a stream may be silent that has a heartbeat each 2 s.
	silence = 15 * time.Second
	// idleTime is how long an unused connection stays open. The server's is longer.
	idleTime = 4 * time.Minute
	// acknowledged is how many keys one request acknowledges.
	acknowledged = 32
	// maxTarget bounds the bytes of a URL: a server reads 64 KiB of headers. Longer ones have paths that no kernel takes.
	maxTarget = 60 << 10
	// cancelTime bounds the cancellation of a request.
	cancelTime = 5 * time.Second
)

// worker is a server that runs sandboxes.
type worker struct {
	name  string   // its address, as given
	flags []string // of the command line, which name it
	base  string
	token string
	log   *slog.Logger
	http  *http.Client

	opening sync.Mutex // held while a lease is being opened
	mu      sync.Mutex
	lease   *lease // nil if there is none
	skip    time.Time
	why     error // of skip
	pending int   // starts that were sent there and have not ended
}

func newWorker(address string, opts *Options) (*worker, error) {
	base, socket, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	config, err := opts.tls()
	if err != nil {
		return nil, err
	}
	dial := (&net.Dialer{Timeout: dialTime, KeepAlive: silence}).DialContext
	t := &http.Transport{
		DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: dialTime, MaxIdleConnsPerHost: 64, IdleConnTimeout: idleTime,
		DisableCompression: true, ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}
	if socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", socket) }
	}
	flags := []string{"--workers", address}
	if opts.Discover != nil {
		flags = opts.Discover.Flags
	}
	return &worker{name: address, flags: flags, base: base, token: opts.Token, log: opts.Logger, http: &http.Client{Transport: t}}, nil
}

// request is a request as data.
type request struct {
	method, path string // the path is escaped
	query        url.Values
	json         any       // the body, in JSON
	data         []byte    // or as it is
	from         io.Reader // or from here; such a request is sent once
	size         int64     // bytes of from; -1 if unknown
	lease        *lease
	key          string // the worker runs requests with the same key once
	again        bool   // it may be sent again without a key, as a GET may
	once         bool   // it is not sent again in any case
	upgrade      string // the protocol that the connection gets

	body []byte
	sent bool // an attempt may have arrived
}

func (r *request) repeatable() bool {
	return r.from == nil && !r.once && (r.key != "" || r.again || r.method == http.MethodGet || r.method == http.MethodDelete)
}

// call sends a request, and decodes its answer unless to is nil. It repeats a request whose answer is lost, if that cannot
// run anything twice.
func (w *worker) call(ctx context.Context, r *request, to any) error {
	return w.repeat(ctx, r, func(resp *http.Response) error {
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return &lostError{w.name, err, true}
		}
		if to == nil {
			return nil
		}
		if err := json.Unmarshal(text, to); err != nil {
			return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("worker %s: invalid answer: %w", w.name, err)}
		}
		return nil
	})
}

// open sends a request, and returns the body of its answer with its headers.
func (w *worker) open(ctx context.Context, r *request) (body io.ReadCloser, header http.Header, err error) {
	err = w.repeat(ctx, r, func(resp *http.Response) error {
		body, header = resp.Body, resp.Header
		return nil
	})
	return body, header, err
}

// callOnce is call for a request that runs once. If ctx ends, or the answer is lost, it is canceled: what it started is ended.
func (w *worker) callOnce(ctx context.Context, r *request, to any) error {
	r.key = r.lease.newKey()
	err := w.call(ctx, r, to)
	if lost, ok := asLost(err); ok && lost.sent || err != nil && ctx.Err() != nil {
		w.cancel(ctx, r)
		return err
	}
	r.lease.noteAnswers(r.key)
	return err
}

// cancel cancels a request by its key.
func (w *worker) cancel(ctx context.Context, r *request) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer done()
	path := "/v1/leases/" + r.lease.id + "/keys/" + r.key
	if err := w.call(ctx, &request{method: http.MethodDelete, path: path, lease: r.lease}, nil); err != nil {
		w.log.Debug("a request is not canceled: it ends with its lease", "worker", w.name, "path", r.path, "error", err)
		return
	}
	r.lease.noteAnswers(r.key)
}

// repeat sends a request until an answer has arrived that read takes. It repeats those that are repeatable for a while.
func (w *worker) repeat(ctx context.Context, r *request, read func(*http.Response) error) error {
	if r.body = r.data; r.json != nil {
		var err error
		if r.body, err = json.Marshal(r.json); err != nil {
			return &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
		}
	}
	var since time.Time // when the failures began
	for {
		began := time.Now()
		resp, err := w.send(ctx, r) //nolint:bodyclose // read has it
		if err == nil {
			err = read(resp)
		}
		lost, ok := asLost(err)
		if !ok {
			return w.settle(r, err)
		}
		r.sent = r.sent || lost.sent
		wait := time.Duration(0)
		if since.IsZero() || time.Since(began) > patience {
			since = time.Now() // it was answered meanwhile, or waited for its answer
		} else {
			wait = pause
		}
		if ended := r.endReason(ctx); ended != nil || !r.repeatable() || time.Since(since) > patience {
			if ctx.Err() != nil {
				return err
			}
			return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: &lostError{w.name, cmp.Or(ended, lost.err), r.sent}}
		}
		w.log.Debug("a request is repeated", "worker", w.name, "path", r.path, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// endReason returns why a request is not repeated any more: its lease is lost, or the caller has given up.
func (r *request) endReason(ctx context.Context) error {
	if r.lease != nil && r.lease.life.Err() != nil {
		return context.Cause(r.lease.life) //nolint:contextcheck // the lease's own
	}
	return ctx.Err()
}

// settle returns the error of an answer. If the lease is gone, and an earlier attempt may have arrived, its answer is lost.
func (w *worker) settle(r *request, err error) error {
	if r.lease == nil || !isStale(err) {
		return err
	}
	r.lease.lose(err)
	if r.sent {
		return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: &lostError{w.name, err, true}}
	}
	return err
}

// send sends a request once.
func (w *worker) send(ctx context.Context, r *request) (*http.Response, error) {
	lost := func(err error, sent bool) error { return &lostError{w.name, err, sent} }
	ctx, cancel := context.WithCancel(ctx)
	end := func() {}
	if r.lease != nil {
		if r.lease.life.Err() != nil {
			cancel()
			return nil, lost(context.Cause(r.lease.life), false) //nolint:contextcheck // the lease's own
		}
		stop := context.AfterFunc(r.lease.life, cancel) //nolint:contextcheck // the lease's own
		end = func() { stop() }
	}
	done := sync.OnceFunc(func() { end(); cancel() })
	connected := false
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, keys, err := w.build(traced, r)
	if err != nil {
		done()
		return nil, err
	}
	resp, err := w.http.Do(req)
	if err != nil {
		done()
		r.lease.restoreKeys(keys)
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the path, which has secrets
		}
		return nil, lost(err, connected)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer done()
		return nil, failure(resp)
	}
	resp.Body = &body{resp.Body, done}
	return resp, nil
}

func (w *worker) build(ctx context.Context, r *request) (req *http.Request, keys []string, err error) {
	target := w.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	if len(target) > maxTarget {
		return nil, nil, &fumehood.Error{Class: fumehood.ErrLimit, Err: errors.New("file name too long")}
	}
	var from io.Reader
	switch {
	case r.from != nil:
		from = r.from
	case r.body != nil:
		from = bytes.NewReader(r.body)
	}
	if req, err = http.NewRequestWithContext(ctx, r.method, target, from); err != nil {
		return nil, nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	if r.from != nil {
		req.ContentLength = r.size
	}
	if r.json != nil {
		req.Header.Set("Content-Type", "application/json")
	} else if from != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.lease != nil {
		req.Header.Set("Fumehood-Lease", r.lease.id)
		if keys = r.lease.acknowledge(); len(keys) > 0 {
			req.Header.Set("Idempotency-Received", strings.Join(keys, ","))
		}
	}
	if r.upgrade != "" {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", r.upgrade)
	}
	return req, keys, nil
}

// body is the body of an answer, whose request ends when it is closed.
type body struct {
	io.ReadCloser
	done func()
}

func (b *body) Write(p []byte) (int, error) { return b.ReadCloser.(io.Writer).Write(p) } //nolint:forcetypeassert // of an upgraded connection

func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
