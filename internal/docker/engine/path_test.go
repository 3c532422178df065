package engine

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestClient_unfound(t *testing.T) {
	there := map[string]bool{"/own/bin/tool": true, "/app/tool": true, "/app/sub/tool": true}
	c, _ := guard(t, io.Discard, func(r *http.Request, _ int) (*http.Response, error) {
		name := r.URL.Query().Get("path")
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/v1.44/containers/a/json":
			return answer(http.StatusOK, `{"Id": "a", "State": {"Running": true}, "Config": {"WorkingDir": "/app", "Env": ["PATH=/own/bin:/bin"]}}`), nil
		case r.Method == http.MethodHead && there[name]:
			res := answer(http.StatusOK, "")
			res.Header.Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"name": %q, "mode": 420}`, name)))
			return res, nil
		}
		return answer(http.StatusNotFound, `{"message": "Could not find the file in container a"}`), nil
	})
	missing := &fumehood.Error{Class: fumehood.ErrProgramNotFound}
	for _, test := range []struct {
		program, dir string
		env          map[string]string
		found        bool
	}{
		{program: "tool", found: true},
		{program: "other"},
		{program: "tool", env: map[string]string{"PATH": "/bin"}},
		{program: "tool", env: map[string]string{"PATH": "/bin:"}, found: true},
		{program: "tool", env: map[string]string{"PATH": "sub"}, found: true},
		{program: "tool", dir: "/else", env: map[string]string{"PATH": ".:sub"}},
		{program: "/app/tool"},
	} {
		err := c.explainNotFound(t.Context(), "a", fumehood.Cmd{Args: []string{test.program}, Dir: test.dir, Env: test.env}, missing)
		if errors.Is(err, fumehood.ErrNotExecutable) != test.found || errors.Is(err, fumehood.ErrProgramNotFound) == test.found {
			t.Errorf("%+v: %v", test, err)
		}
	}
	if err := c.explainNotFound(t.Context(), "a", fumehood.Cmd{Args: []string{"tool"}}, fumehood.ErrDirNotFound); !errors.Is(err, fumehood.ErrDirNotFound) {
		t.Errorf("another error becomes %v", err)
	}
}
