package engine

import (
	"io"
	"net/http"
	"testing"
)

// A command that has just ended cannot be resized, but the Engine may still list it as running.
func TestExec_Resize_ended(t *testing.T) {
	for text, fails := range map[string]bool{"cannot resize a stopped container: unknown": false, "something else": true} {
		c, _ := guard(t, io.Discard, func(r *http.Request, _ int) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return answer(http.StatusOK, `{"ID": "x", "Running": true, "Pid": 7}`), nil
			}
			return answer(http.StatusInternalServerError, `{"message": "`+text+`"}`), nil
		})
		e := &Exec{c: c, id: "x", container: "a", tty: true}
		if err := e.Resize(t.Context(), 24, 80); (err != nil) != fails {
			t.Errorf("%s: %v", text, err)
		}
	}
}
