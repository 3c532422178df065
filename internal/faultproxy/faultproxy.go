// Package faultproxy is a Docker Engine with faults, for tests: a proxy in front of a real one that delays calls, breaks
// their connections, hangs, reports internal errors and cuts answers short.
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

// Fault is what happens to a call.
type Fault int

// The faults.
const (
	None        Fault = iota
	Delay             // the call is made later
	ResetBefore       // the connection ends, and the call is not made
	ResetAfter        // the call is made, and the connection ends before its answer
	Hang              // the call is not made, and nothing ever comes
	HangAfter         // the call is made, and nothing ever comes
	Internal          // the call is not made, and the Engine reports an internal error
	NoSpace           // the call is not made, and the Engine reports a full disk
	Truncate          // the call is made, and its answer, or the stream that it becomes, ends early
	Mute              // the call is made, and its answer begins and goes no further
)

var names = map[Fault]string{
	Delay: "delay", ResetBefore: "reset before", ResetAfter: "reset after", Hang: "hang", HangAfter: "hang after",
	Internal: "internal error", NoSpace: "full disk", Truncate: "truncate", Mute: "mute",
}

func (f Fault) String() string { return names[f] }

const (
	// DelayedBy is how long Delay takes where the proxy says nothing else.
	DelayedBy = 700 * time.Millisecond
	// CutAfter is how many bytes Truncate lets through at most: less than a frame of output with its head.
	CutAfter = 11
)

// Proxy is an Engine with faults.
type Proxy struct {
	Host  string        // its address, as DOCKER_HOST has it
	Delay time.Duration // how long Delay takes; set before Decide

	backend *http.Transport
	over    chan struct{} // closed at its end

	mu     sync.Mutex
	decide func(call string) Fault
	made   map[string]int // by fault and call
	taken  []net.Conn     // that calls have taken over
}

// Start makes a proxy in front of the Engine at the unix socket until the end of the test. Without Decide there are no
// faults.
func Start(t testing.TB, socket string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "faults-") // a test's own folder has too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	listen := filepath.Join(dir, "engine.sock")
	l, err := net.Listen("unix", listen)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Host: "unix://" + listen, Delay: DelayedBy, over: make(chan struct{}), made: map[string]int{}}
	p.backend = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
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
		_ = server.Serve(l) // its end is asked for below
	}()
	t.Cleanup(func() {
		close(p.over)
		_ = server.Close() // the connections are cut
		p.Sever()
		<-served
		p.backend.CloseIdleConnections()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Decide makes f decide on the fault of each call from now on, told the call as "POST /containers/create": ids and names
// are a *. Nil means no faults. It is called by one goroutine at a time.
func (p *Proxy) Decide(f func(call string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = f
}

// Sever ends all connections that calls have taken over: those of attached containers and execs.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.taken {
		_ = c.Close() // it may have ended before
	}
	p.taken = nil
}

// Made tells how often each fault was made of each call, for logs.
func (p *Proxy) Made() map[string]int {
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
	object  = regexp.MustCompile(`^(/(?:containers|exec|networks|volumes|images)/)(.+?)(/(?:json|start|stop|attach|logs|archive|exec|wait|resize|tag))?$`)
)

// callOf names a call.
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
	switch fault {
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
			switch fault {
			case ResetAfter, HangAfter:
				if res.StatusCode != http.StatusSwitchingProtocols {
					_, _ = io.Copy(io.Discard, res.Body) // whole or not, it is not for anybody
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

// hang waits until nobody waits any more.
func (p *Proxy) hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
	select {
	case <-r.Context().Done():
	case <-p.over:
	}
}

// reset ends the connection.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// refuse answers as the Engine does when something of its own is wrong.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = fmt.Fprintf(w, "{\"message\":%q}\n", why) // who does not read it has gone
}

// cut ends a body early.
func cut(body io.ReadCloser) io.ReadCloser {
	short := &shortened{ReadCloser: body, left: CutAfter}
	if rw, ok := body.(io.ReadWriteCloser); ok {
		return stream{short, rw}
	}
	return short
}

// mute is a body of which nothing comes.
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

// stream is a shortened connection.
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

// Socket is the path of a daemon's address that is a unix socket; false where it is none.
func Socket(host string) (string, bool) { return strings.CutPrefix(host, "unix://") }
