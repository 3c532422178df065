// Package faultproxy provides a Docker Engine with faults, for tests. It is a proxy in front of a real Engine that
// delays calls, breaks their connections, hangs, reports internal errors and truncates answers.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is what the proxy does to a call.
type Fault int

// The faults.
const (
	None        Fault = iota
	Delay             // the call is made after a delay
	ResetBefore       // the connection is closed, and the call is not made
	ResetAfter        // the call is made, and the connection is closed before the answer
	Hang              // the call is not made, and there is no answer
	HangAfter         // the call is made, and there is no answer
	Internal          // the call is not made, and the Engine reports an internal error
	NoSpace           // the call is not made, and the Engine reports a full disk
	Truncate          // the call is made, and its answer, or the stream that follows, ends early
	Mute              // the call is made, and its answer stops after the header
)

var names = map[Fault]string{
	Delay: "delay", ResetBefore: "reset before", ResetAfter: "reset after", Hang: "hang", HangAfter: "hang after",
	Internal: "internal error", NoSpace: "full disk", Truncate: "truncate", Mute: "mute",
}

func (f Fault) String() string { return names[f] }

const (
	// DelayedBy is the default duration of Delay.
	DelayedBy = 700 * time.Millisecond
	// CutAfter is how many bytes Truncate passes on: less than a frame of output with its head.
	CutAfter = 11
)

// Proxy is a running proxy.
type Proxy struct {
	Host  string        // its address, in the format of DOCKER_HOST
	Delay time.Duration // the duration of the fault Delay; set it before Decide

	backend *http.Transport
	over    chan struct{} // closed when the proxy stops

	mu     sync.Mutex
	decide func(call string) Fault
	made   map[string]int // by fault and call
	taken  []net.Conn     // connections that calls have taken over
}

// Start starts a proxy in front of the Engine at a unix socket. It runs until the end of the test. Without Decide
// there are no faults.
func Start(t testing.TB, socket string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "faults-") // the path of a test's own folder is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	listen := filepath.Join(dir, "engine.sock")
	l, err := net.Listen("unix", listen)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Host: "unix://" + listen, Delay: DelayedBy, over: make(chan struct{}), made: map[string]int{}}
	// As without a proxy, the Engine must not compress what it sends.
	p.backend = &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateHijacked {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.taken = append(p.taken, c)
			}
		},
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // returns after Close below
	}()
	t.Cleanup(func() {
		close(p.over)
		_ = server.Close() // closes the connections
		p.Sever()
		<-served
		p.backend.CloseIdleConnections()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Decide sets the function that decides about the fault of each following call. call is such as "POST
// /containers/create", with ids and names replaced by a *. Nil means no faults. f is not called concurrently.
func (p *Proxy) Decide(f func(call string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = f
}

// Sever closes all connections that calls have taken over: those of attached containers and execs.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.taken {
		_ = c.Close() // it may be closed already
	}
	p.taken = nil
}

// Counts returns how often each fault was applied to each call, for logs.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := map[string]int{}
	for k, n := range p.made {
		made[k] = n
	}
	return made
}

var (
	version = regexp.MustCompile(`^/v[0-9.]+`)
	object  = regexp.MustCompile(`^(/(?:containers|exec|networks|volumes|images)/)(.+?)(/(?:json|start|stop|kill|pause|unpause|attach|logs|archive|exec|wait|resize|top|stats|update|rename|tag|connect|disconnect))?$`)
)

// callOf returns the name of a call.
func callOf(method, path string) string {
	path = version.ReplaceAllString(path, "")
	if m := object.FindStringSubmatch(path); m != nil && m[2] != "json" && m[2] != "create" && m[2] != "load" {
		path = m[1] + "*" + m[3]
	}
	return method + " " + path
}

func (p *Proxy) faultOf(call string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.decide == nil {
		return None
	}
	f := p.decide(call)
	if f != None {
		p.made[fmt.Sprintf("%s of %s", f, call)]++
	}
	return f
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := p.faultOf(callOf(r.Method, r.URL.Path))
	switch fault { //nolint:exhaustive // the others come after the call
	case Delay:
		select {
		case <-time.After(p.Delay):
		case <-r.Context().Done():
			return
		}
	case ResetBefore:
		reset(w)
		return
	case Hang:
		p.hang(r)
		reset(w)
		return
	case Internal:
		refuse(w, "the test has injected an error")
		return
	case NoSpace:
		refuse(w, "mkdir /var/lib/docker/overlay2/0a1b: no space left on device")
		return
	}
	proxy := httputil.ReverseProxy{
		Transport: p.backend, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(pr *httputil.ProxyRequest) { pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "docker" },
		ModifyResponse: func(res *http.Response) error {
			switch fault { //nolint:exhaustive // the others came before the call
			case ResetAfter, HangAfter:
				if res.StatusCode != http.StatusSwitchingProtocols {
					_, _ = io.Copy(io.Discard, res.Body) // no one receives it, complete or not
				}
				_ = res.Body.Close()
				if fault == HangAfter {
					p.hang(r)
				}
				return errGone
			case Truncate:
				res.Body = cut(res.Body)
			case Mute:
				res.Body = mute{res.Body, r.Context().Done(), p.over}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) },
	}
	proxy.ServeHTTP(w, r)
}

var errGone = errors.New("the connection is to end")

// hang waits until the client has gone or the proxy stops.
func (p *Proxy) hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the connection is not noticed
	select {
	case <-r.Context().Done():
	case <-p.over:
	}
}

// reset closes the connection.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// refuse answers like an Engine with an internal error.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = fmt.Fprintf(w, "{\"message\":%q}\n", why) // the client may have gone
}

// cut truncates a body.
func cut(body io.ReadCloser) io.ReadCloser {
	short := &shortened{ReadCloser: body, left: CutAfter}
	if rw, ok := body.(io.ReadWriteCloser); ok {
		return stream{short, rw}
	}
	return short
}

// mute is a body without content or end.
type mute struct {
	io.ReadCloser
	left, over <-chan struct{}
}

func (m mute) Read([]byte) (int, error) {
	select {
	case <-m.left:
	case <-m.over:
	}
	return 0, errGone
}

type shortened struct {
	io.ReadCloser
	left int
}

func (s *shortened) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, errGone
	}
	n, err := s.ReadCloser.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

// stream is a truncated connection.
type stream struct {
	*shortened
	rw io.ReadWriteCloser
}

func (s stream) Write(b []byte) (int, error) { return s.rw.Write(b) }

func (s stream) CloseWrite() error {
	if c, ok := s.rw.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.New("it cannot be closed for writing")
}

// Socket returns the path of a daemon's unix socket; false if its address is not one.
func Socket(host string) (string, bool) { return strings.CutPrefix(host, "unix://") }
