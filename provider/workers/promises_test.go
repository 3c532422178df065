//go:build linux && (amd64 || arm64)

package workers_test

import (
	"context"
	"os"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/workers"
)

func TestProvider_Promises(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		spec  fumehood.Spec
		users conformance.Users
	}{
		{"busybox root", fumehood.Spec{Image: busybox}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}},
		{"debian user", fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester"}, conformance.Users{Name: "daemon", UID: 1, GID: 1}},
		{"of another process debian user", fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester", Keep: true}, conformance.Users{Name: "daemon", UID: 1, GID: 1}},
	} {
		exceptions := map[string]conformance.Exception{}
		if c.spec.User == "" {
			exceptions["errors/forbidden file is ErrPermission"] = conformance.RootMayAll
		}
		if c.spec.Keep {
			exceptions["stop/sandbox not kept cannot be stopped"] = conformance.AlwaysKept
		}
		t.Run("workers "+c.name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, serve(t, "--allow-kept", "--allow-unsafe").url)
			probe := c.spec.Dir + "/probe"
			begin := func(t *testing.T, keeps bool) fumehood.Sandbox {
				spec := c.spec
				spec.Keep = spec.Keep || keeps
				sb := start(t, p, spec)
				if spec.Keep {
					removeAfter(t, p, sb)
				}
				if c.spec.Keep {
					if err := sb.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					if sb, err = p.Open(t.Context(), sb.Info().Name); err != nil {
						t.Fatal(err)
					}
				}
				if err := sb.WriteFile(t.Context(), probe, program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
					t.Fatal(err)
				}
				return sb
			}
			conformance.Run(t, conformance.Harness{
				Column: "workers " + c.name, Probe: probe, Users: c.users, Exceptions: exceptions,
				Start:     func(t *testing.T) fumehood.Sandbox { return begin(t, false) },
				StartKept: func(t *testing.T) fumehood.Sandbox { return begin(t, true) },
			})
		})
	}
}

// removeAfter removes a kept sandbox when t ends. It must still exist then.
func removeAfter(t *testing.T, p *workers.Provider, sb fumehood.Sandbox) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{sb.Info().Name}}); err != nil {
			t.Error(err)
		}
	})
}
