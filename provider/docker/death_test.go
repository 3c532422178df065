package docker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/faultproxy"
	"github.com/lazaret/lazaret/provider/conformance"
	"github.com/lazaret/lazaret/provider/docker"
)

// A service ends in the middle of a sample. Every call from then on tells how, and the daemon is asked once.
func TestTheDeathOfAServiceIsToldByTheNextCall(t *testing.T) {
	// It runs until there is a file, and then ends as the case says.
	const waits = `echo up; while [ ! -e /tmp/end ]; do date >/dev/null; sleep 0.1; done; echo last words; `
	for name, c := range map[string]struct {
		end  string
		opts docker.Options
		says []string
	}{
		"an exit":                     {"exit 3", docker.Options{}, []string{"exited with code 3", "last words"}},
		"an exit, by the engine":      {"exit 3", docker.Options{Transport: docker.TransportEngine}, []string{"exited with code 3", "last words"}},
		"the out-of-memory killer":    {"exec tail /dev/zero", docker.Options{}, []string{"exited with code 137", "out-of-memory killer struck", "last words"}},
		"an end with a long last log": {"seq 1000; exit 4", docker.Options{}, []string{"exited with code 4", "\n    1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "compose.yaml")
			text := "services:\n  a:\n    image: " + busybox + "\n    mem_limit: 64m\n    command: [sh, -c, '" + waits + c.end + "']\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p, proxy := faulty(t, c.opts)
			sb := start(t, p, lazaret.Spec{Compose: &lazaret.Compose{Files: []string{file}}})
			if res, err := sb.Exec(t.Context(), lazaret.Cmd{Args: []string{"touch", "/tmp/end"}}); err != nil || !res.Success() && res.Outcome != lazaret.Lost {
				t.Fatal(res, err)
			}
			container := sb.Info().Services[0].Container
			conformance.Eventually(t, "the container has ended", func() bool {
				state, err := engineOf(t).Inspect(t.Context(), container)
				return err == nil && !state.Running
			})
			var logs, calls atomic.Int64
			proxy.Decide(func(call string) faultproxy.Fault {
				calls.Add(1)
				if call == "GET /containers/*/logs" {
					logs.Add(1)
				}
				return faultproxy.None
			})
			ask := func() {
				_, err := sb.Exec(t.Context(), lazaret.Cmd{Args: []string{"true"}})
				if !errors.Is(err, lazaret.ErrUnavailable) {
					t.Errorf("got %v, want an ErrUnavailable", err)
					return
				}
				for _, want := range c.says {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not in %q", want, err)
					}
				}
				if len(err.Error()) > 2000 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(ask)
			}
			all.Wait()
			if n := logs.Load(); n != 1 {
				t.Errorf("the log was read %d times", n)
			}
			before := calls.Load()
			ask()
			if n := calls.Load() - before; n != 0 {
				t.Errorf("one call more asks the daemon %d times", n)
			}
		})
	}
}
