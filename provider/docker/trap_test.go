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

	"github.com/fumehood/fumehood/internal/dockertest"
	"github.com/fumehood/fumehood/internal/engine"
)

// trap stands between an owner and the daemon, and tells of one request.
type trap struct {
	address string
	caught  chan struct{} // closed when the request has come
	resume  chan struct{} // closed by who wants the request to go on
	through chan struct{} // closed when the daemon has answered it

	creates atomic.Int64 // under way in the daemon, whether or not their owner lives

	mu     sync.Mutex
	armed  *regexp.Regexp // nil while there is nothing to catch
	goesOn bool
}

// version is what a path of the Engine's API begins with.
var version = regexp.MustCompile(`^/v[0-9.]+/`)

// create is the path of a request that makes an object, which the daemon does not give up with its client.
var create = regexp.MustCompile(`/(networks|volumes|containers)/create$`)

// arm has the next request caught that is as said.
func (tr *trap) arm(ph phase) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.armed, tr.goesOn = regexp.MustCompile("^"+ph.request), ph.goesOn
}

// catches says whether a request is the one, and how it goes on.
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
			body, _ := io.ReadAll(r.Body) // all of it is there
			tr.creates.Add(1)
			defer tr.creates.Add(-1)
			// One that can be cancelled, and is not: of one that cannot be, the proxy ends with its client.
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
		defer func() { _ = recover() }() // how a reverse proxy tells that its client has gone
		next.ServeHTTP(w, r)
	})
	return tr
}

// awaitClosed waits until a channel is closed.
func awaitClosed(t *testing.T, ch <-chan struct{}, what string, v *victim) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		v.kill()
		v.lines.Scan()
		t.Fatalf("no sign of %s; the owner says %q", what, v.lines.Text())
	}
}
