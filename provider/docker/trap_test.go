package docker_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/test/dockertest"
)

// trap is a proxy between an owner and the daemon that reports one request.
type trap struct {
	address string
	caught  chan struct{} // closed when the request has arrived
	resume  chan struct{} // closed by the test to let the request continue
	through chan struct{} // closed when the daemon has answered it

	creates atomic.Int64 // number of creations in progress in the daemon, whether or not their owner lives

	mu     sync.Mutex
	armed  *regexp.Regexp // nil if no request is to be caught
	goesOn bool
}

// version matches the prefix of paths of the Engine's API.
var version = regexp.MustCompile(`^/v[0-9.]+/`)

// create matches the paths of requests that create an object. The daemon completes them even if the client disconnects.
var create = regexp.MustCompile(`/(networks|volumes|containers)/create$`)

// arm makes the trap catch the next matching request.
func (tr *trap) arm(ph phase) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.armed, tr.goesOn = regexp.MustCompile("^"+ph.request), ph.goesOn
}

// catches reports whether a request is the one to catch, and whether it goes on.
func (tr *trap) catches(r *http.Request) (is, goesOn bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.armed == nil || !tr.armed.MatchString(r.Method+" "+version.ReplaceAllString(r.URL.Path, "/")) {
		return false, false
	}
	tr.armed = nil
	return true, tr.goesOn
}

func setTrap(t *testing.T, e *engine.Client) *trap {
	t.Helper()
	tr := &trap{caught: make(chan struct{}), resume: make(chan struct{}), through: make(chan struct{})}
	tr.address = dockertest.Between(t, e, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		is, goesOn := tr.catches(r)
		if goesOn || create.MatchString(r.URL.Path) {
			body, _ := io.ReadAll(r.Body) // it has arrived completely
			tr.creates.Add(1)
			defer tr.creates.Add(-1)
			// The context can be canceled, but is not. If it could not be canceled, the proxy would end the request
			// with its client.
			ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
			defer cancel()
			r = r.WithContext(ctx)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		switch {
		case is && goesOn:
			close(tr.caught)
			<-tr.resume
			defer close(tr.through)
		case is:
			close(tr.caught)
			close(tr.through)
		}
		defer func() { _ = recover() }() // a reverse proxy panics when its client has gone
		next.ServeHTTP(w, r)
	})
	return tr
}

// awaitClosed waits until a channel is closed.
func awaitClosed(t *testing.T, ch <-chan struct{}, name string, v *victim) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		v.kill()
		v.lines.Scan()
		t.Fatalf("no sign of %s; the owner says %q", name, v.lines.Text())
	}
}
