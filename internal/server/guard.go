package server

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
)

const (
	// silence is how long the sender of a body may send nothing, and the reader of an answer may read nothing.
	silence = 30 * time.Second
	// maxBodies is how many bytes of JSON the requests that are being answered may have together. Those of at most
	// smallBody bytes are not counted.
	maxBodies = 1 << 30
	smallBody = 64 << 10
	// maxSpool is how many bytes the files may have together that hold uploads without a length.
	maxSpool = 16 << 30
)

// request is what handlers know of a request beside its input.
type request struct {
	target string // method, path and query
	body   io.Reader
	size   int64 // of the body; -1 if it is unknown
	answer *answer
	lease  *lease // held until the request has been answered; nil if unheld is set
	unheld error
	// upgrade reports whether the connection may become a stream; see streamProtocol.
	upgrade bool
}

type requestKey struct{}

func requestOf(ctx context.Context) request {
	r, _ := ctx.Value(requestKey{}).(request)
	return r
}

// guard lets only requests through that are for this server, from no web page, and with its token. It bounds bodies in
// size and time, and logs.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, inner := time.Now(), r
		answer := &answer{ResponseWriter: w, control: http.NewResponseController(w), silence: s.opts.silence}
		defer func() { //nolint:contextcheck // it has the request's
			about := []any{"method", r.Method, "route", inner.Pattern}
			p := recover()
			if p != nil {
				answer.status = cmp.Or(answer.status, http.StatusInternalServerError)
				err, _ := p.(error)
				if !errors.Is(err, http.ErrAbortHandler) && !answer.broken { // huma panics when it cannot write an answer
					s.opts.Logger.Error("a request panicked", append(about, "panic", p, "stack", string(debug.Stack()))...)
				}
			}
			s.metrics.request(answer.status)
			// The path has names of sandboxes and leases, which are secrets, and the query paths of files.
			s.opts.Logger.Log(r.Context(), s.opts.AccessLevel, "request",
				append(about, "status", answer.status, "took", time.Since(began), "sent", answer.sent)...)
			if p != nil {
				panic(p) //nolint:forbidigo // package net/http breaks the connection
			}
		}()
		most := s.opts.Limits.Body
		if r.Method == http.MethodPut {
			most = s.opts.Limits.Upload
		}
		admitted, f := s.admit(r, most)
		defer admitted()
		if f != nil {
			w.Header().Set("Connection", "close") // the body is not read
			fail(answer, f)
			return
		}
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close") // no request can hide behind another length of this one's body
		}
		content := r.Body
		if content != http.NoBody {
			answer.body = &body{ReadCloser: content, control: answer.control, silence: s.opts.silence}
			content = answer.body
		}
		content = http.MaxBytesReader(answer, content, most)
		about := request{target: r.Method + " " + r.URL.RequestURI(), body: content, size: r.ContentLength, answer: answer, upgrade: wantsStream(r.Header)}
		var release func()
		about.lease, release, about.unheld = s.hold(r.Header.Get("Fumehood-Lease"))
		defer release()
		// A request with a key goes on when its client is gone, and then holds the lease no longer.
		defer context.AfterFunc(r.Context(), release)()
		inner = r.WithContext(context.WithValue(r.Context(), requestKey{}, about))
		inner.Body = content // r keeps its own, by which net/http knows whether another request can follow
		next.ServeHTTP(answer, inner)
	})
}

// admit returns why a request is refused, or nil. release must be called when it has been answered.
func (s *Server) admit(r *http.Request, most int64) (release func(), f *errorAnswer) {
	release = func() {}
	refuse := func(status int, message string) *errorAnswer {
		return newAnswer(status, fumehood.CodePermission, "check request", message)
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case !isLoopback(r.Host) && !slices.Contains(s.opts.Hosts, strings.ToLower(r.Host)): // DNS rebinding
		f = refuse(http.StatusMisdirectedRequest, "the header Host names another server")
	case r.Header.Get("Origin") != "", site != "" && site != "none":
		f = refuse(http.StatusForbidden, "requests of web pages are refused")
	case s.opts.Token != "" && r.URL.Path != healthPath && !s.authorized(r.Header.Get("Authorization")):
		f = refuse(http.StatusUnauthorized, "the bearer token is missing or wrong")
	case r.ContentLength > most:
		f = newAnswer(http.StatusRequestEntityTooLarge, fumehood.CodeTooLarge, opRead, "the request's body is too large")
	}
	size := r.ContentLength
	if size < 0 {
		size = most
	}
	if f != nil || r.Method == http.MethodPut || size <= smallBody {
		return release, f
	}
	wait, cancel := context.WithTimeout(r.Context(), s.opts.silence)
	defer cancel()
	if err := s.bodies.Acquire(wait, size); err != nil {
		const why = "the requests that are being answered have too many bytes"
		return release, newAnswer(http.StatusTooManyRequests, fumehood.CodeLimit, opRead, why)
	}
	return func() { s.bodies.Release(size) }, nil
}

// authorized compares a token in a time that does not depend on it.
func (s *Server) authorized(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	want, got := sha256.Sum256([]byte(s.opts.Token)), sha256.Sum256([]byte(strings.TrimSpace(token)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// body reads a request's body, whose sender may not be silent for long.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	silence time.Duration
	ended   atomic.Bool // a provider may still read when the answer begins
}

func (b *body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(b.silence)) // without deadlines, as in some tests, it blocks
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) { // after another error, nothing more is read
		b.ended.Store(true)
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// expect limits the time for the rest of the body, which net/http reads before it sends the answer. The time to write the
// answer has begun, so half of it is left.
func (b *body) expect() {
	if b != nil && !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Now().Add(b.silence / 2))
	}
}

// answer writes an answer, whose reader may not be silent for long, and remembers what was written.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	silence time.Duration
	body    *body // nil without one
	status  int
	sent    int64
	broken  bool // a write failed
	patient bool // see waitForReader
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
		a.body.expect()
	}
	a.ResponseWriter.WriteHeader(status)
}

// waitForReader makes the answer to a request wait for a reader that reads nothing, until life ends.
func waitForReader(ctx, life context.Context) {
	a := requestOf(ctx).answer
	if a == nil {
		return
	}
	a.patient = true
	_ = a.control.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(life, func() { _ = a.control.SetWriteDeadline(time.Now()) })
	context.AfterFunc(ctx, func() { stop() })
}

// expectReader limits the time of the next write.
func (a *answer) expectReader() {
	if !a.patient {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.silence))
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.expectReader()
	n, err := a.ResponseWriter.Write(p)
	a.sent += int64(n)
	a.broken = a.broken || err != nil
	return n, err
}

func (a *answer) Flush() {
	a.expectReader()
	_ = a.control.Flush() // a write reports a broken connection
}

// Hijack takes over the connection, for which the caller has announced a status by hand.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := a.control.Hijack()
	if err == nil {
		a.status = http.StatusSwitchingProtocols
	}
	return conn, both, err
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
