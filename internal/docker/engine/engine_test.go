package engine

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
)

// Many that ask at once wait for the same answer of an Engine, each as long as its own context allows.
func TestClient_Server_concurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 5
		var answers atomic.Bool
		c, e := guard(t, io.Discard, func(r *http.Request, _ int) (*http.Response, error) {
			if !answers.Load() {
				return hang(r)
			}
			return answer(200, `{"Version":"29.0.1","ApiVersion":"1.44","Os":"linux","Arch":"amd64"}`), nil
		})
		began := time.Now()
		ask := func(ctx context.Context, want error, after time.Duration) {
			if _, err := c.Server(ctx); !errors.Is(err, want) || time.Since(began) != after {
				t.Errorf("got %v after %v, want %v after %v", err, time.Since(began), want, after)
			}
		}
		for range callers {
			go ask(t.Context(), fumehood.ErrUnavailable, pingTimeout)
		}
		synctest.Wait()
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ask(hurried, context.DeadlineExceeded, time.Second)
		<-time.After(pingTimeout * (callers + 1))
		answers.Store(true)
		before := e.count("GET /v1.44/version")
		for range callers {
			if s, err := c.Server(t.Context()); err != nil || s.Version != "29.0.1" {
				t.Errorf("got %+v, %v", s, err)
			}
		}
		if n := e.count("GET /v1.44/version"); n != before+1 {
			t.Errorf("%d requests after it has answered, want 1", n-before)
		}
	})
}
