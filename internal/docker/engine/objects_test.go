package engine

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// An Engine may keep an endpoint whose container is gone. Such an endpoint can be disconnected only by its name.
func TestRemove_staleEndpoint(t *testing.T) {
	left := true
	c, _ := guard(t, io.Discard, func(r *http.Request, _ int) (*http.Response, error) {
		switch {
		case r.Method == http.MethodDelete && left:
			return answer(http.StatusForbidden, `{"message": "error while removing network: network n has active endpoints"}`), nil
		case r.Method == http.MethodDelete:
			return answer(http.StatusNoContent, ""), nil
		case r.Method == http.MethodGet:
			return answer(http.StatusOK, `{"Name": "n", "Containers": {"ep-0a1b": {"Name": "box-1", "EndpointID": "0a1b"}}}`), nil
		case strings.HasSuffix(r.URL.Path, "/disconnect"):
			var body struct {
				Container string
				Force     bool
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				return nil, err
			}
			if body.Container != "box-1" || !body.Force {
				return answer(http.StatusNotFound, `{"message": "No such container: `+body.Container+`"}`), nil
			}
			left = false
			return answer(http.StatusOK, ""), nil
		}
		t.Errorf("%s %s", r.Method, r.URL.Path)
		return answer(http.StatusNotFound, "{}"), nil
	})
	if err := c.Remove(t.Context(), Object{Kind: Network, ID: "n", Name: "n"}); err != nil {
		t.Error(err)
	}
}
