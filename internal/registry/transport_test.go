package registry

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// at is a RoundTripper.
type at func(*http.Request) (*http.Response, error)

func (f at) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A slow reader of an answer is not a slow registry.
func TestImpatient_slowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 * LeastSent
		next := at(func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: io.NopCloser(strings.NewReader(strings.Repeat("x", size)))}, nil
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := Impatient{next, Patience}.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * Patience) // the reader takes longer than a registry may
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != size-1 {
			t.Errorf("%d bytes, %v", len(rest), err)
		}
	})
}
