// Package server serves sandboxes over HTTP: the API of package api under /v1, described by an OpenAPI document that is
// made from this code. It is thin over the library: what may be done is decided in permit.go, what belongs to whom in
// lease.go, and that nothing runs twice in once.go.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// Options configure a server. The zero value of each field but Open is usable.
type Options struct {
	// Open opens the provider, which calls report with the steps of pulls and builds. It is called when the first sandbox
	// is requested.
	Open func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error)
	// Reason returns why Open chose its provider, if it is because the Docker Engine refuses this user, else "". It is called
	// after Open. Nil is no reason.
	Reason func() string
	// Local reports that the provider is the local one. Sandboxes of files have the type local then, and not docker.
	Local bool
	// Version is the version of the program.
	Version string
	// Token is the bearer token that every request must have. Empty means that none is needed.
	Token string
	// Hosts are further values of the header Host that are accepted, beside the names of the loopback.
	Hosts  []string
	Permit Permit
	Limits Limits
	// Logger logs requests at AccessLevel, by route and without what clients sent. Nil disables the log.
	Logger      *slog.Logger
	AccessLevel slog.Level

	// Smaller in tests; 0 means grace, silence, maxHeld, maxAnswers, maxBodies and maxSpool.
	grace, silence time.Duration
	held, answers  int64
	bodies, spool  int64
	sessions       string // folder of sessions; empty means the default
}

// Limits bound what the clients with one token may use at the same time. 0 means the default.
type Limits struct {
	Sandboxes int   // default 1000
	Commands  int   // running commands; default 1000
	Streams   int   // open streams to ports of sandboxes; default 1000
	Memory    int64 // bytes of a sandbox's memory limit; by default any
	Body      int64 // bytes of a request's JSON; default 64 MiB
	Upload    int64 // bytes of an uploaded file or archive; default 4 GiB
	// Idle is how long a sandbox may have no call and no running command until it is removed, and the default of a client
	// that names no time. By default it may stay unused. Kept sandboxes, sessions and evaluations are not concerned.
	Idle time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Sandboxes, l.Commands = cmp.Or(l.Sandboxes, 1000), cmp.Or(l.Commands, 1000)
	l.Streams = cmp.Or(l.Streams, 1000)
	l.Body, l.Upload = cmp.Or(l.Body, 64<<20), cmp.Or(l.Upload, 4<<30)
	return l
}

// Server serves the sandboxes of one provider. Make it with New.
type Server struct {
	opts     Options
	instance string // begins with a letter and has no minus sign
	handler  http.Handler
	api      huma.API

	opening singleflight.Group
	opened  atomic.Pointer[fumehood.Provider]
	// life ends when the server stops. Leases, which outlive requests, end with it.
	life context.Context //nolint:containedctx // the server's own
	stop func()

	mu        sync.Mutex
	leases    map[string]*lease
	kept      map[string]*held // kept sandboxes, which outlive leases
	sandboxes atomic.Int64     // started or being started, unless they are kept
	starting  atomic.Int64     // of these, being started
	draining  atomic.Bool      // set by Drain
	owned     atomic.Int64     // sessions and evaluations
	held      atomic.Int64     // bytes of answers that leases hold
	commands  atomic.Int64     // running
	streams   atomic.Int64     // open
	journals  atomic.Int64     // bytes of journals
	reports   reports
	bodies    *semaphore.Weighted // bytes of large bodies
	spooled   *semaphore.Weighted // bytes of uploads in files of this machine
	metrics   metrics
}

// New returns a server. It runs until Serve ends.
func New(ctx context.Context, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Limits = opts.Limits.withDefaults()
	opts.grace, opts.silence = cmp.Or(opts.grace, grace), cmp.Or(opts.silence, silence)
	opts.held, opts.answers = cmp.Or(opts.held, maxHeld), cmp.Or(opts.answers, maxAnswers)
	opts.bodies = max(cmp.Or(opts.bodies, maxBodies), opts.Limits.Body)
	opts.spool = max(cmp.Or(opts.spool, maxSpool), opts.Limits.Upload)
	s := &Server{
		opts: opts, instance: "s" + random(6), leases: map[string]*lease{}, kept: map[string]*held{},
		reports: reports{all: map[chan api.Progress]string{}}, bodies: semaphore.NewWeighted(opts.bodies),
		spooled: semaphore.NewWeighted(opts.spool),
	}
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s.life, s.stop = life, func() { stop(errLeaseEnded) }
	mux := http.NewServeMux()
	s.api = humago.New(mux, configuration(opts.Version))
	s.register()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		why := "no such path of the API, or not with the method " + r.Method
		fail(w, newAnswer(http.StatusNotFound, fumehood.CodeNotFound, "", why))
	})
	s.handler = s.guard(mux)
	return s
}

// Handler returns the server as a handler, for tests.
func (s *Server) Handler() http.Handler { return s.handler }

// Instance returns the random name of this server.
func (s *Server) Instance() string { return s.instance }

// random returns n random bytes in hexadecimal.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func (s *Server) register() {
	s.registerLeases()
	s.registerSandboxes()
	s.registerCommands()
	s.registerPorts()
	s.registerFiles()
	s.registerImages()
	s.registerJournals()
	s.registerSessions()
	s.registerEvaluations()
	s.registerRuns()
	s.registerWorkers()
}

const (
	headerTime = 10 * time.Second
	idleTime   = 5 * time.Minute
	// stopTime is how long requests may go on when the server stops, after their leases have ended.
	stopTime = 10 * time.Second
)

// healthPath needs no token, which the probes of a cluster have not.
const healthPath = "/healthz"

// Serve serves connections of the listener until ctx ends. Then it ends all leases, and closes the provider.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug), // mostly connections that clients broke
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if serr := server.Shutdown(rest); serr != nil {
		_ = server.Close() // what remains are connections of clients that do not read
	}
	return err
}

// close ends all leases and the provider.
func (s *Server) close(ctx context.Context) error {
	s.stop() // from now on, no lease is opened
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.leases))
	s.mu.Unlock()
	for _, l := range all {
		l.end() //nolint:contextcheck // the lease's own
	}
	for _, l := range all {
		<-l.removed
	}
	if p, err, _ := s.opening.Do("", s.open); err == nil { // it waits for a provider that is being opened
		return p.(fumehood.Provider).Close(ctx)
	}
	return nil
}

// provider returns the provider, and opens it if it is not open yet. Other requests go on meanwhile.
func (s *Server) provider(ctx context.Context) (fumehood.Provider, error) {
	if p := s.opened.Load(); p != nil {
		return *p, nil
	}
	select {
	case r := <-s.opening.DoChan("", s.open):
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(fumehood.Provider), nil
	case <-ctx.Done():
		return nil, &fumehood.Error{Op: "open provider", Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	}
}

// providerReason returns why the provider was chosen, or "".
func (s *Server) providerReason() string {
	if s.opts.Reason == nil || s.opened.Load() == nil {
		return ""
	}
	return s.opts.Reason()
}

// open returns the provider. It opens it if it is not open, unless the server has stopped.
func (s *Server) open() (any, error) {
	if p := s.opened.Load(); p != nil {
		return *p, nil
	}
	if s.life.Err() != nil {
		return nil, context.Cause(s.life)
	}
	p, err := s.opts.Open(s.life, s.reports.send)
	if err == nil {
		s.opened.Store(&p)
	}
	return p, err
}

// loopback matches names of the loopback in lower case, with any port or without one.
var loopback = regexp.MustCompile(`^(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?$`)

// isLoopback reports whether the value of a header Host is a name of the loopback.
func isLoopback(host string) bool { return loopback.MatchString(strings.ToLower(host)) }
