package local_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/local"
)

func newProvider(t *testing.T, opts local.Options) *local.Provider {
	t.Helper()
	if opts.StateDir == "" {
		opts.StateDir = filepath.Join(t.TempDir(), "state")
	}
	p, err := local.New(opts)
	if err != nil {
		t.Fatal(err)
	}
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

func start(t *testing.T, p *local.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestProvider_Promises(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the suite needs signals, links and terminals")
	}
	provider := newProvider(t, local.Options{})
	exceptions := conformance.NoUsers("no other users")
	exceptions["links/links stay inside the sandbox"] = conformance.HostLinks
	maps.Copy(exceptions, exceptionsHere())
	maps.Copy(exceptions, noStop())
	if os.Getuid() == 0 {
		exceptions["errors/forbidden file is ErrPermission"] = conformance.RootMayAll
	}
	conformance.Run(t, conformance.Harness{
		Column:     columnHere(),
		Probe:      conformance.BuildProbe(t),
		Users:      conformance.Users{UID: 54321, GID: 54321}, // need not exist
		Start:      func(t *testing.T) fumehood.Sandbox { return start(t, provider, fumehood.Spec{}) },
		Exceptions: exceptions,
	})
}

func noStop() map[string]conformance.Exception {
	return conformance.NoStop("closing already ends all commands and keeps the folder")
}

func columnHere() string {
	if os.Getuid() == 0 {
		return column + " as root"
	}
	return column
}

// conformance.Run must run only the requested groups.
func TestRun_groups(t *testing.T) {
	t.Parallel()
	provider, exceptions := newProvider(t, local.Options{}), noStop()
	var ran atomic.Int32
	for _, group := range []string{"exec", "stop"} {
		for _, promise := range conformance.Promises(group) {
			w := exceptions[promise]
			w.Reason = cmp.Or(w.Reason, "unused")
			w.Check = func(*testing.T, *conformance.Case) { ran.Add(1) }
			exceptions[promise] = w
		}
	}
	t.Cleanup(func() {
		if got, want := int(ran.Load()), len(conformance.Promises("stop")); got != want {
			t.Errorf("%d promises ran, want %d", got, want)
		}
	})
	conformance.Run(t, conformance.Harness{
		Column: columnHere(), Probe: "unused", Groups: []string{"stop"}, Exceptions: exceptions,
		Start: func(t *testing.T) fumehood.Sandbox { return start(t, provider, fumehood.Spec{}) },
	})
}

func TestProvider_warnsOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProvider(t, local.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	start(t, p, fumehood.Spec{})
	start(t, p, fumehood.Spec{})
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "isolates nothing") {
		t.Errorf("log: %q", log.String())
	}
	var own bytes.Buffer
	start(t, p, fumehood.Spec{Logger: slog.New(slog.NewTextHandler(&own, nil))})
	if n := strings.Count(log.String()+own.String(), "level=WARN"); n != 2 || !strings.Contains(own.String(), "isolates nothing") {
		t.Errorf("logs: %q and %q", log.String(), own.String())
	}
}

func TestStart_unsupported(t *testing.T) {
	t.Parallel()
	p := newProvider(t, local.Options{})
	named := map[string]bool{ // these are supported, mean nothing without isolation, or need a network
		"Ports": true, "Name": true, "Env": true, "Dir": true, "AllowUnsafe": true, "Keep": true, "TTL": true, "Labels": true, "ConfigFile": true, "Journal": true, "Logger": true,
	}
	for name, spec := range map[string]fumehood.Spec{
		"run an image":                              {Image: "debian"},
		"run commands as another user":              {User: "nobody"},
		"choose a network":                          {Network: fumehood.Network{Mode: fumehood.NetworkNone}},
		"limit memory, CPUs, processes or the disk": {Limits: fumehood.Limits{Memory: 1 << 30}},
		"use a container CLI":                       {Binary: "podman"},
		"mount paths":                               {Mounts: []fumehood.Mount{{Host: "/a", Container: "/a"}}},
		"run a Compose project":                     {Compose: &fumehood.Compose{Content: "services: {default: {image: debian}}"}},
		"run an image ":                             {Images: map[string]string{"default": "sha256:1"}},
		"set the size of /dev/shm":                  {ShmSize: 1 << 20},
		"mount a tmpfs":                             {Tmpfs: []string{"/a"}},
		"choose a seccomp profile":                  {Seccomp: fumehood.SeccompBrowsers},
		"choose a container runtime":                {Runtime: "runsc"},
	} {
		for f, value := range reflect.ValueOf(spec).Fields() {
			if !value.IsZero() {
				named[f.Name] = true
			}
		}
		name = strings.TrimSpace(name)
		_, err := p.Start(t.Context(), spec)
		var e *fumehood.Error
		if !errors.Is(err, fumehood.ErrUnsupported) || !errors.As(err, &e) || e.Hint == "" || !strings.Contains(err.Error(), "cannot "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for f := range reflect.TypeFor[fumehood.Spec]().Fields() {
		if !named[f.Name] {
			t.Errorf("%s: support it, or name it in checkSpec and here", f.Name)
		}
	}
	sb, err := p.Start(t.Context(), fumehood.Spec{Limits: fumehood.Limits{CPUs: fumehood.NoLimit}})
	if err != nil {
		t.Fatalf("no limit at all: %v", err)
	}
	if _, err := sb.Forward(t.Context(), fumehood.Port{Container: 80}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("a port: %v", err)
	}
	if _, err := sb.Dial(t.Context(), 80); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("a connection: %v", err)
	}
}

func TestSandbox_folder(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	p := newProvider(t, local.Options{StateDir: state})
	sb := start(t, p, fumehood.Spec{Name: "locked"})
	folder := filepath.Join(state, "locked")
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := sb.WriteFile(t.Context(), "a/b/c", nil, fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"work/a/b", "work/a"} {
		if err := os.Chmod(filepath.Join(folder, d), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestClose_kept(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p, err := local.New(local.Options{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	sb := start(t, p, fumehood.Spec{Name: "kept", Keep: true})
	if err := sb.WriteFile(t.Context(), "file", []byte("x"), fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(state, "kept", "work", "file")); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestExec_environment(t *testing.T) {
	t.Setenv("FUMEHOOD_TEST_SECRET", "of the host")
	p := newProvider(t, local.Options{})
	sb := start(t, p, fumehood.Spec{Env: map[string]string{"OF_THE_SPEC": "yes"}})
	probe := conformance.BuildProbe(t)
	for name, want := range map[string]string{
		"FUMEHOOD_TEST_SECRET": "", "OF_THE_SPEC": "yes", "HOME": sb.ServiceInfo().Dir,
		"TMPDIR": filepath.Join(filepath.Dir(sb.ServiceInfo().Dir), "tmp"), "PATH": os.Getenv("PATH"),
	} {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{probe, "env", name}})
		if err != nil || res.Stdout.Text() != want || res.Success() != (want != "") {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

func TestStart_dir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newProvider(t, local.Options{})
	sb := start(t, p, fumehood.Spec{Dir: dir})
	if err := sb.WriteFile(t.Context(), "file", nil, fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
	if _, err := p.Start(t.Context(), fumehood.Spec{Dir: filepath.Join(dir, "none")}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("missing directory: %v", err)
	}
}

func TestExec_argumentsTooLong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the limit of one argument is Linux's")
	}
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{os.Args[0], strings.Repeat("x", 1<<20)}})
	if !errors.Is(fumehood.ClassOf(err), fumehood.ErrNotStarted) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v", err)
	}
}

func TestExec_noInterpreter(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no interpreter lines")
	}
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	if err := sb.WriteFile(t.Context(), "script", []byte("#!/no/such/interpreter\n"), fumehood.WriteOptions{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"./script"}})
	if !errors.Is(fumehood.ClassOf(err), fumehood.ErrNotExecutable) {
		t.Errorf("got %v", err)
	}
}

// A folder whose owner cannot be read stays until it is named.
func TestCleanup_torn(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	p := newProvider(t, local.Options{StateDir: state})
	folder := filepath.Join(state, "torn")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "owner"), []byte("v1 cut"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []provider.CleanupOptions{{}, {Names: []string{"torn"}}} {
		if _, err := p.Cleanup(t.Context(), opts); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(folder); (err == nil) != (opts.Names == nil) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

func TestUpload_badArchive(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("making links needs rights there")
	}
	sb := start(t, newProvider(t, local.Options{}), fumehood.Spec{})
	for name, head := range map[string]tar.Header{
		"../escaped": {Name: "../escaped", Typeflag: tar.TypeReg},
		"escapes":    {Name: "up/escaped", Typeflag: tar.TypeReg},
		"pipe":       {Name: "pipe", Typeflag: tar.TypeFifo},
		"../other":   {Name: "link", Linkname: "../other", Typeflag: tar.TypeLink},
		"folder":     {Name: "folder", Typeflag: tar.TypeReg},
	} {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		up, folder := tar.Header{Name: "up", Linkname: "..", Typeflag: tar.TypeSymlink}, tar.Header{Name: "folder/", Typeflag: tar.TypeDir, Mode: 0o755}
		if err := errors.Join(w.WriteHeader(&up), w.WriteHeader(&folder), w.WriteHeader(&head), w.Close()); err != nil {
			t.Fatal(err)
		}
		err := sb.Upload(t.Context(), ".", &buf)
		class := fumehood.ErrConfig
		if head.Name == "folder" {
			class = fumehood.ErrIsDirectory
		}
		if !errors.Is(fumehood.ClassOf(err), class) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", head.Name, err)
		}
	}
}

// No control group counts the processor time of a host's process alone.
func TestExec_cpuTime(t *testing.T) {
	t.Parallel()
	conformance.NoCPUTime(t, start(t, newProvider(t, local.Options{}), fumehood.Spec{}))
}
