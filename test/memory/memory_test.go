//go:build linux && (amd64 || arm64)

package memory_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/test/memory"
)

func TestMain(m *testing.M) {
	ctx := context.Background()
	if conformance.Owner(ctx, os.Stdout, fumehood.Spec{}, func(dir string, _ bool) (fumehood.Provider, error) {
		e, err := memory.NewEngine(ctx, dir)
		if err != nil {
			return nil, err
		}
		return memory.New(e)
	}) {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// newEngine returns an engine and its folder.
func newEngine(t *testing.T) (e *memory.Engine, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make PID namespaces")
	}
	dir = reachable(t, t.TempDir())
	e, err := memory.NewEngine(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return e, dir
}

// reachable lets all users enter a temporary folder.
func reachable(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newProvider returns a provider of an engine, like that of another process.
func newProvider(t *testing.T, e *memory.Engine) *memory.Provider {
	t.Helper()
	p, err := memory.New(e)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestProvider_Promises(t *testing.T) {
	t.Parallel()
	e, _ := newEngine(t)
	p := newProvider(t, e)
	probe := conformance.BuildProbe(t)
	reachable(t, filepath.Dir(probe))
	conformance.Run(t, conformance.Harness{
		Column: "memory", Probe: probe,
		Users: conformance.Users{Name: "nobody", UID: 65534, GID: 65534},
		Start: func(t *testing.T) fumehood.Sandbox { return start(t, p, fumehood.Spec{}) },
		StartKept: func(t *testing.T) fumehood.Sandbox {
			sb, ctx := start(t, p, fumehood.Spec{Keep: true}), context.WithoutCancel(t.Context())
			t.Cleanup(func() {
				if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{sb.Info().Name}}); err != nil {
					t.Error(err)
				}
			})
			return sb
		},
		Exceptions: map[string]conformance.Exception{
			"errors/forbidden file is ErrPermission": conformance.RootMayAll,
			"links/links stay inside the sandbox":    conformance.HostLinks,
		},
	})
}

func start(t *testing.T, p *memory.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	exceptions := conformance.NoProjects("no images")
	maps.Copy(exceptions, conformance.NoReaper("no process survives that knows it", func(t *testing.T, c *conformance.ProviderCase, name string) {
		another := c.Another(t)
		if _, err := another.Start(t.Context(), fumehood.Spec{Name: name}); err != nil {
			t.Fatal(err)
		}
		another.(*memory.Provider).Abandon(name)
	}))
	exceptions["kept/detached commands outlive a killed owner"] = conformance.ProviderException{
		Reason: "the engine ends with its process, and everything in it", Check: endsWithOwner,
	}
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column: "memory provider", Exceptions: exceptions, Failing: fumehood.Spec{Dir: "/no/such/dir"},
		New: func(t *testing.T) conformance.Subject {
			e, dir := newEngine(t)
			return conformance.Subject{
				Provider: newProvider(t, e), Dir: dir,
				Another: func(t *testing.T) fumehood.Provider { return newProvider(t, e) },
				Exists: func(_ *testing.T, name string) bool {
					_, err := os.Lstat(filepath.Join(dir, "boxes", name))
					return err == nil || e.Has(name) || len(processes(filepath.Join(dir, "boxes", name))) > 0
				},
				Guests: func(_ *testing.T, name string) (n int) {
					for _, args := range processes(filepath.Join(dir, "boxes", name)) {
						if strings.HasPrefix(args, filepath.Join(dir, "guest")+" serve ") {
							n++
						}
					}
					return n
				},
				Hinder: func(t *testing.T, sb fumehood.Sandbox) func() {
					busy := filepath.Join(dir, "boxes", sb.Info().Name, "busy")
					err := os.Mkdir(busy, 0o700)
					if err == nil {
						err = unix.Mount("tmpfs", busy, "tmpfs", 0, "")
					}
					if err != nil {
						t.Fatal(err)
					}
					return func() {
						if err := unix.Unmount(busy, unix.MNT_DETACH); err != nil {
							t.Error(err)
						}
					}
				},
			}
		},
	})
}

// endsWithOwner checks that a kept sandbox ends with the process that has it in memory.
func endsWithOwner(t *testing.T, c *conformance.ProviderCase) {
	const name = "of-another-process"
	kill := conformance.StartOwner(t, "kept", c.Dir, name, false)
	folder := filepath.Join(c.Dir, "boxes", name)
	if len(processes(folder)) == 0 {
		t.Error("its processes are not found")
	}
	_, err := c.Provider.(provider.Opener).Open(t.Context(), name)
	conformance.WantError(t, err, fumehood.ErrConfig)
	kill()
	conformance.Eventually(t, "its processes have ended", func() bool { return len(processes(folder)) == 0 })
}

// processes returns the command lines of the processes whose environment has a folder.
func processes(folder string) (all []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		env, _ := os.ReadFile(f) // it may have ended
		if !strings.Contains(string(env), folder+"/") {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		all = append(all, strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " ")))
	}
	return all
}
