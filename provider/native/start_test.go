//go:build linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// run runs a shell script and returns its standard output without the last newline.
func run(t *testing.T, svc fumehood.Service, script string) string {
	t.Helper()
	res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Outcome != fumehood.Exited || res.ExitCode != 0 {
		t.Fatalf("%s: %s, exit code %d: %s", script, res.Outcome, res.ExitCode, res.Stderr.Text())
	}
	return strings.TrimSuffix(res.Stdout.Text(), "\n")
}

func TestProvider_Start_rejected(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	dir := t.TempDir()
	for name, c := range map[string]struct {
		spec fumehood.Spec
		want error
	}{
		"host network":   {fumehood.Spec{Image: busybox, Network: fumehood.Network{Mode: fumehood.NetworkHost}}, fumehood.ErrUnsupported},
		"runtime":        {fumehood.Spec{Image: busybox, Runtime: "reboot"}, fumehood.ErrConfig},
		"runtime's path": {fumehood.Spec{Image: busybox, Runtime: "/bin/sh"}, fumehood.ErrConfig},
		"kept":           {fumehood.Spec{Image: busybox, Keep: true, User: "nobody-of-that-name"}, fumehood.ErrConfig},
		"kept ports":     {fumehood.Spec{Image: busybox, Keep: true, Network: fumehood.Network{Mode: fumehood.NetworkBridge}, Ports: []fumehood.Port{{Container: 80}}}, fumehood.ErrUnsupported},
		"other network":  {fumehood.Spec{Image: busybox, Network: fumehood.Network{Mode: "other"}}, fumehood.ErrUnsupported},
		"few processes":  {fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 10}}, fumehood.ErrConfig},
		"no disk limit":  {fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Disk: fumehood.NoLimit}}, fumehood.ErrUnsupported},
		"unknown user":   {fumehood.Spec{Image: busybox, User: "nobody-of-that-name"}, fumehood.ErrConfig},
		"unknown group":  {fumehood.Spec{Image: busybox, User: "0:nobody-of-that-name"}, fumehood.ErrConfig},
		"bad image name": {fumehood.Spec{Image: "UPPER/case"}, fumehood.ErrConfig},
		"missing file":   {fumehood.Spec{Image: "docker-archive:" + dir + "/missing.tar"}, fumehood.ErrConfig},
		"missing mount":  {fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir + "/missing", Container: "/m"}}}, fumehood.ErrConfig},
		"unsafe mount":   {fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: "/etc", Container: "/m"}}}, fumehood.ErrConfig},
		"mount at root":  {fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir, Container: "/x/.."}}}, fumehood.ErrConfig},
		"mount at proc":  {fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir, Container: "/proc/sys"}}}, fumehood.ErrConfig},
		"mount at guest": {fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir, Container: "/.fumehood/x"}}}, fumehood.ErrConfig},
		"file as folder": {fumehood.Spec{Image: busybox, Dir: "/etc/passwd/x"}, fumehood.ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb, err := p.Start(t.Context(), c.spec)
			if err == nil {
				t.Fatal("started", errors.Join(sb.Close(t.Context())))
			}
			conformance.WantError(t, err, c.want)
		})
	}
}

// A start that fetches an image ends with the provider, and leaves nothing.
func TestProvider_Close_fetching(t *testing.T) {
	t.Parallel()
	asked, done, ended := make(chan bool, 100), make(chan struct{}), make(chan error, 1)
	registry := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- true
		select { // no answer
		case <-r.Context().Done():
		case <-done:
		}
	}))
	defer registry.Close()
	defer close(done)
	p := newProvider(t, native.Options{})
	go func() {
		_, err := p.Start(t.Context(), fumehood.Spec{Image: strings.TrimPrefix(registry.URL, "http://") + "/image"})
		ended <- err
	}()
	<-asked
	if err := p.Close(t.Context()); err != nil { // newProvider checks that nothing is left
		t.Error(err)
	}
	conformance.WantError(t, <-ended, fumehood.ErrUnavailable)
}

// What the image's configuration and the spec say must hold as under docker.
func TestProvider_Start_configuration(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	sb := start(t, p, fumehood.Spec{
		Name: "configured", Image: debian, User: "tester:daemon", Dir: "/made/by/start", Env: map[string]string{"A": "b\nc", "LANG": "C"},
		Mounts: []fumehood.Mount{{Host: dir, Container: "/in/side"}, {Host: filepath.Join(dir, "file"), Container: "/other/file", Writable: true}},
	})
	for script, want := range map[string]string{
		"id -un; id -gn; pwd":             "tester\ndaemon\n/made/by/start",
		"printf %s \"$A\"":                "b\nc",
		"echo $HOME $HOSTNAME":            "/home/tester configured",
		"hostname; cat /etc/hostname":     "configured\nconfigured",
		"grep -c configured /etc/hosts":   "1",
		"stat -c %U:%a /made/by/start":    "root:755",
		"ls /in/side":                     "file",
		"touch /in/side/x 2>&1 | wc -l":   "1",
		"ls -d /dev/shm /dev/pts /.fume*": "/.fumehood\n/dev/pts\n/dev/shm",
	} {
		if got := run(t, sb, script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	if got := run(t, sb.As("0"), "id -u; cat /other/file; echo more >> /other/file"); got != "0\nof the host" {
		t.Errorf("as root: got %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "of the hostmore\n" {
		t.Errorf("the writable mount has %q: %v", text, err)
	}
}

// The files that the set-up writes must not go to a folder of the host.
func TestProvider_Start_mountedEtc(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	dir := t.TempDir()
	want := map[string]string{"hosts": "mine", "hostname": "mine", "passwd": "me:x:0:0::/me:\n"}
	for name, text := range want {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, writable := range []bool{true, false} {
		sb := start(t, p, fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir, Container: "/etc", Writable: writable}}})
		if got := run(t, sb, "id -un; cat /etc/hosts; echo $HOME"); got != "me\nmine/me" {
			t.Errorf("writable %v: got %q", writable, got)
		}
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("%s has %q: %v", name, got, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != len(want) {
		t.Errorf("the folder has %v: %v", all, err)
	}
}

// Anything that weakens isolation must be logged.
func TestProvider_Start_logs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProvider(t, native.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Seccomp: "unconfined"})
	dir := t.TempDir()
	start(t, p, fumehood.Spec{
		Image: busybox, AllowUnsafe: true, Limits: fumehood.Limits{Memory: fumehood.NoLimit, PIDs: fumehood.NoLimit},
		Mounts: []fumehood.Mount{{Host: dir, Container: "/w", Writable: true}, {Host: "/etc", Container: "/e"}},
	})
	for _, want := range []string{"not filtered", "can write to the host", "isolation is broken", "limit=memory", "limit=pids"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log.String())
		}
	}
}

func TestSpec_seccomp(t *testing.T) {
	t.Parallel()
	need(t)
	for name, opts := range map[string]native.Options{"root": {}, "user namespace": {UserNamespace: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			p := newProvider(t, opts)
			conformance.Browsers(t, p, fumehood.Spec{Image: debian})
			if !strings.Contains(log.String(), "seccomp=browsers") {
				t.Errorf("got %s", log.String())
			}
			project := composeFile(t, "services: {box: {image: "+debian+", command: sleep infinity}}")
			if got := run(t, start(t, p, fumehood.Spec{Seccomp: fumehood.SeccompBrowsers, Compose: project}), "unshare -U id -u"); got != "65534" {
				t.Errorf("got %q", got)
			}
		})
	}
	_, err := newProvider(t, native.Options{Seccomp: "unconfined"}).Start(t.Context(), fumehood.Spec{Image: debian, Seccomp: fumehood.SeccompBrowsers})
	conformance.WantError(t, err, fumehood.ErrConfig)
}

func TestOptions_Seccomp(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "profile.json")
	profile := `{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
		"syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}`
	if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	need(t)
	sb := start(t, newProvider(t, native.Options{Seccomp: file}), fumehood.Spec{Image: debian})
	if got := run(t, sb, "mkdir /x 2>&1 || true; grep ^Seccomp: /proc/self/status"); !strings.Contains(got, "No space left") || !strings.HasSuffix(got, "2") {
		t.Errorf("got %q", got)
	}
	_, err := native.New(t.Context(), native.Options{Seccomp: filepath.Join(t.TempDir(), "missing")})
	conformance.WantError(t, err, fumehood.ErrConfig)
}

func TestSandbox_Freeze(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox})
	thaw, err := sb.Freeze(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("a frozen sandbox answers: %v", err)
	case <-time.After(200 * time.Millisecond): // a command takes about a millisecond
	}
	_, err = sb.As("1000").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}) // it would start a guest there
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	if err := thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A process that starts guests in a sandbox is not frozen with it by another process.
func TestSandbox_Freeze_joining(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	freezer, joiner := d.open(t, name), d.open(t, name)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		for uid := range tier.Pick(t, 10, 20, 200) { // each starts a guest, or finds the sandbox paused
			_, _ = joiner.As(strconv.Itoa(1000+uid)).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		}
	}()
	for done := false; !done; {
		thaw, err := freezer.Freeze(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		threads, err := filepath.Glob("/proc/self/task/*/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			if text, _ := os.ReadFile(thread); strings.Contains(string(text), "/"+name+"-") { // the thread may have ended
				t.Errorf("a thread of this process is frozen:\n%s", text)
			}
		}
		if err := thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-joined:
			done = true
		case <-time.After(time.Millisecond): // somebody else may run
		}
	}
}

// A process that starts guests in a sandbox is not one of the sandbox's, although a thread of it is there for a moment.
func TestSandbox_Stop_joining(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	sb := start(t, p, fumehood.Spec{Image: busybox, Keep: true})
	t.Cleanup(func() {
		if _, err := p.Cleanup(context.Background(), provider.CleanupOptions{Names: []string{sb.Info().Name}}); err != nil {
			t.Error(err)
		}
	})
	var joins sync.WaitGroup
	for n := range 4 {
		joins.Go(func() {
			for uid := range 6 { // each starts a guest, which Stop may kill
				_, _ = sb.As(strconv.Itoa(1000+100*n+uid)).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			}
		})
	}
	for range 20 {
		if err := sb.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	joins.Wait()
}
