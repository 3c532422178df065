package engine

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRemove_speedup(t *testing.T) {
	for speedup, want := range map[Speedup]time.Duration{0: working, 60: working / 60} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := guard(t, io.Discard, func(r *http.Request, _ int) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/wait") {
					return hang(r)
				}
				return answer(http.StatusConflict, `{"message": "removal of container a is already in progress"}`), nil
			})
			c.speedup = speedup
			began := time.Now()
			err := c.Remove(t.Context(), Object{Kind: Container, ID: "a", Name: "a"})
			if took := time.Since(began); err == nil || took != want {
				t.Errorf("speedup %d: waited %v, want %v: %v", speedup, took, want, err)
			}
		})
	}
}
