package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	// patience is how long a registry may take to begin an answer, and to send leastSent bytes of it.
	patience = 30 * time.Second
	// leastSent is in bytes. A registry that sends less is as good as silent: 30 s for it are 2 KiB a second.
	leastSent = 64 << 10
)

// silent is the error of a registry or an Engine that accepts a request and does not answer it, or only by a few bytes now and
// then. It is not temporary, so that the request is not sent again.
type silent struct {
	host   string
	within time.Duration
}

func (s *silent) Error() string {
	return fmt.Sprintf("%s has sent less than %d KiB within %v", s.host, leastSent>>10, s.within)
}

// impatient sends requests to registries and the Engine. It ends those that take too long, however long the caller would wait.
type impatient struct {
	next   http.RoundTripper
	within time.Duration
}

// connections are those to registries, by the usual proxies.
var connections = sync.OnceValue(func() http.RoundTripper {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	t.TLSHandshakeTimeout = 0 // its error is temporary, so that the request would be sent again
	return t
})

// RoundTrip sends a request.
func (t impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	late := &silent{req.URL.Host, t.within}
	ctx, cancel := context.WithCancelCause(req.Context())
	b := &boundedBody{ctx: ctx, cancel: cancel, late: late, left: t.within}
	b.timer = time.AfterFunc(t.within, func() { cancel(late) })
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	b.timer.Stop()
	if err != nil {
		err = b.cause(err)
		cancel(nil)
		return nil, err
	}
	b.ReadCloser = resp.Body
	resp.Body = b
	return resp, nil
}

// boundedBody is the body of an answer. It counts the time in which its reader waits.
type boundedBody struct {
	io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	late   *silent
	timer  *time.Timer   // cancels the request
	left   time.Duration // for the next leastSent bytes
	sent   int           // bytes of them that have arrived
}

// Read reads from the body.
func (b *boundedBody) Read(p []byte) (int, error) {
	begun := time.Now()
	b.timer.Reset(b.left)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.left -= time.Since(begun)
	if b.sent += n; b.sent >= leastSent {
		b.sent, b.left = 0, b.late.within
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.cause(err)
	}
	return n, err
}

// cause returns the error of a request: late, if that has ended it.
func (b *boundedBody) cause(err error) error {
	if errors.Is(context.Cause(b.ctx), b.late) {
		return b.late
	}
	return err
}

// Close ends the request.
func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
