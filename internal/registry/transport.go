package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
)

const (
	// Patience is how long a registry may take to begin an answer, and to send LeastSent bytes of it.
	Patience = 30 * time.Second
	// LeastSent is in bytes. A registry that sends less is as good as silent: 30 s for it are 2 KiB a second.
	LeastSent = 64 << 10
)

// Silent is the error of a registry or an Engine that accepts a request and does not answer it, or only by a few bytes now and
// then. It is not temporary, so that the request is not sent again.
type Silent struct {
	host   string
	within time.Duration
}

func (s *Silent) Error() string {
	return fmt.Sprintf("%s has sent less than %d KiB within %v", s.host, LeastSent>>10, s.within)
}

// Impatient sends requests to registries and the Engine. It ends those that take too long, however long the caller would wait.
type Impatient struct {
	Next   http.RoundTripper
	Within time.Duration
}

// connections are those to registries, by the usual proxies.
var connections = sync.OnceValue(func() http.RoundTripper {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	t.TLSHandshakeTimeout = 0 // its error is temporary, so that the request would be sent again
	return t
})

// RoundTrip sends a request.
func (t Impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	late := &Silent{req.URL.Host, t.Within}
	ctx, cancel := context.WithCancelCause(req.Context())
	b := &boundedBody{ctx: ctx, cancel: cancel, late: late, left: t.Within}
	b.timer = time.AfterFunc(t.Within, func() { cancel(late) })
	resp, err := t.Next.RoundTrip(req.WithContext(ctx))
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
	late   *Silent
	timer  *time.Timer   // cancels the request
	left   time.Duration // for the next LeastSent bytes
	sent   int           // bytes of them that have arrived
}

// Read reads from the body.
func (b *boundedBody) Read(p []byte) (int, error) {
	begun := time.Now()
	b.timer.Reset(b.left)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.left -= time.Since(begun)
	if b.sent += n; b.sent >= LeastSent {
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

// bounded sends requests whose answers have a maximum size.
type bounded struct {
	next http.RoundTripper
	most int64 // bytes
}

// RoundTrip sends a request.
func (t bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedAnswer{resp.Body, t.most, t.most}
	}
	return resp, err
}

// boundedAnswer is the body of an answer that may have so many bytes.
type boundedAnswer struct {
	io.ReadCloser
	left, most int64
}

// Read reads from the body. It fails behind the last byte that is allowed.
func (b *boundedAnswer) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		return int(b.left), fail(fumehood.ErrLimit, "", "the registry's answer has more than %d bytes", b.most)
	}
	b.left -= int64(n)
	return n, err
}
