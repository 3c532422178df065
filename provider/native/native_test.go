//go:build linux && (amd64 || arm64)

package native_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// The test images of `make images`.
const (
	debian  = "fumehood-test/python"
	busybox = "fumehood-test/busybox"
	static  = "fumehood-test/static"
)

// newProvider returns a provider that is closed when t ends. Nothing of it may be left then.
func newProvider(t *testing.T, opts native.Options) *native.Provider {
	t.Helper()
	need(t)
	if opts.StateDir == "" {
		opts.StateDir = filepath.Join(t.TempDir(), "state")
	}
	p, err := native.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	images := []string{busybox}
	if opts.CacheDir == "" { // otherwise it takes a second to unpack them
		images = append(images, debian, static)
	}
	testimages.Load(t, p, images...)
	ctx := t.Context()
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(opts.StateDir); err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return p
}

// need skips t where sandboxes cannot be made.
func need(t *testing.T) {
	t.Helper()
	if err := native.CheckSupport(); err != nil {
		tier.Missing(t, tier.CI, err)
	}
}

func start(t *testing.T, p *native.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestProvider_Promises(t *testing.T) {
	t.Parallel()
	need(t)
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		spec  fumehood.Spec
		users conformance.Users
		from  tier.Tier
		opts  native.Options
	}{
		{"debian root", fumehood.Spec{Image: debian}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}, tier.CI, native.Options{}},
		{"debian user", fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester"}, conformance.Users{Name: "daemon", UID: 1, GID: 1}, tier.Quick, native.Options{}},
		{opened + "debian user", fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester", Keep: true}, conformance.Users{Name: "daemon", UID: 1, GID: 1}, tier.CI, native.Options{}},
		{"busybox root", fumehood.Spec{Image: busybox}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}, tier.CI, native.Options{}},
		{"compose project busybox root", fumehood.Spec{Compose: composeFile(t, twoPrograms)}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}, tier.All, native.Options{}},
		{"compose project busybox user namespace", fumehood.Spec{Compose: composeFile(t, twoPrograms)}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}, tier.All, native.Options{UserNamespace: true}},
		{"static user", fumehood.Spec{Image: static, User: "1000", Dir: "/home"}, conformance.Users{UID: 2000, GID: 0}, tier.CI, native.Options{}},
		{"debian user namespace", fumehood.Spec{Image: debian}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}, tier.CI, native.Options{UserNamespace: true}},
	} {
		exceptions := map[string]conformance.Exception{}
		if c.spec.Keep {
			exceptions["stop/sandbox not kept cannot be stopped"] = conformance.AlwaysKept
		}
		if c.spec.User == "" {
			exceptions["errors/forbidden file is ErrPermission"] = conformance.RootMayAll
		}
		if c.spec.Image == static {
			exceptions["exec/commands run as a named user"] = conformance.NoUserNames
		}
		t.Run("native "+c.name, func(t *testing.T) {
			tier.Need(t, c.from)
			t.Parallel()
			p := newProvider(t, c.opts)
			probe := c.spec.Dir + "/probe"
			begin := func(t *testing.T, keeps bool) fumehood.Sandbox {
				spec := c.spec
				if spec.Image == static {
					spec.Mounts = []fumehood.Mount{home(t, spec.Dir)}
				}
				if keeps && spec.Compose != nil {
					spec.Compose = composeFile(t, twoWaiting)
				}
				var sb fumehood.Sandbox
				if spec.Keep || keeps {
					sb = keep(t, p, spec)
				} else {
					sb = start(t, p, spec)
				}
				if spec.Keep {
					sb = again(t, p, sb)
				}
				if err := sb.WriteFile(t.Context(), probe, program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
					t.Fatal(err)
				}
				return sb
			}
			conformance.Run(t, conformance.Harness{
				Column: "native " + c.name, Probe: probe, Users: c.users, Exceptions: exceptions,
				Start:     func(t *testing.T) fumehood.Sandbox { return begin(t, false) },
				StartKept: func(t *testing.T) fumehood.Sandbox { return begin(t, true) },
			})
		})
	}
}

// twoPrograms is a project whose services have programs of their own. Only services that wait can be kept.
const (
	twoPrograms = "services:\n  default: {image: " + busybox + ", command: httpd -f -p 8080, depends_on: [other]}\n  other: {image: " + busybox + ", command: httpd -f -p 8081}\n"
	twoWaiting  = "services:\n  default: {image: " + busybox + ", command: sleep infinity}\n  other: {image: " + busybox + ", command: sleep infinity}\n"
)

// opened is the beginning of the name of a column whose sandboxes another process could have started.
const opened = "of another process "

// again closes a kept sandbox and opens it.
func again(t *testing.T, p *native.Provider, sb fumehood.Sandbox) fumehood.Sandbox {
	t.Helper()
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb, err := p.Open(t.Context(), sb.Info().Name)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// home returns a mount of a folder in which every user may write, for an image that has none.
func home(t *testing.T, path string) fumehood.Mount {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // regardless of the umask
		t.Fatal(err)
	}
	return fumehood.Mount{Host: dir, Container: path, Writable: true}
}
