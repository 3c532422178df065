package docker_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
)

func TestStart_retried(t *testing.T) {
	t.Parallel()
	const attach, begin = "POST /containers/*/attach", "POST /containers/*/start"
	for name, c := range map[string]struct {
		call   string
		fault  faultproxy.Fault
		faults int64
		spec   fumehood.Spec
		starts int64 // number of calls that start a container
		fails  string
	}{
		"the attaching":           {attach, faultproxy.ResetBefore, 1, fumehood.Spec{Image: busybox}, 1, ""},
		"the guest's stream":      {attach, faultproxy.Truncate, 1, fumehood.Spec{Image: busybox}, 2, ""},
		"the attaching, refused":  {attach, faultproxy.Internal, 2, fumehood.Spec{Image: busybox}, 1, ""},
		"the start, before":       {begin, faultproxy.ResetBefore, 1, fumehood.Spec{Image: busybox}, 2, ""},
		"the start, after":        {begin, faultproxy.ResetAfter, 1, fumehood.Spec{Image: busybox}, 1, ""},
		"all starts":              {begin, faultproxy.ResetBefore, 9, fumehood.Spec{Image: busybox}, 3, "after 3 attempts"},
		"a project's own program": {begin, faultproxy.ResetBefore, 9, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{ownMain(t)}}}, 1, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, proxy := faulty(t, docker.Options{})
			warm(t)
			var calls, starts atomic.Int64
			proxy.Decide(func(call string) faultproxy.Fault {
				if call == begin {
					starts.Add(1)
				}
				if call == c.call && calls.Add(1) <= c.faults {
					return c.fault
				}
				return faultproxy.None
			})
			spec := c.spec
			spec.Name = "again-" + strings.ToLower(strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name))
			sb, err := p.Start(t.Context(), spec)
			proxy.Decide(nil)
			switch {
			case c.fails == "" && err == nil:
				if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || !res.Success() {
					t.Errorf("the sandbox does not work: %+v, %v", res, err)
				}
				if err := sb.Close(t.Context()); err != nil {
					t.Error(err)
				}
			case c.fails == "" || err == nil || !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), c.fails):
				t.Errorf("got %v, want %q", err, c.fails)
			}
			if n := starts.Load(); n != c.starts {
				t.Errorf("%d calls to start a container, want %d", n, c.starts)
			}
			if left := objectsOf(t, spec.Name); len(left) != 0 {
				t.Errorf("left behind: %+v", left)
			}
		})
	}
}
