//go:build linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/tier"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// unprivileged is set if this program runs as another user, and holds a folder with images.
const unprivileged = "FUMEHOOD_TEST_UNPRIVILEGED"

// stranger is the id of that user. It has no entry in any file.
const stranger = 54321

// asUser runs this test as a user without rights, in a process of its own that calls test with a function that returns
// the reference of an image. Only the images named are there.
func asUser(t *testing.T, test func(t *testing.T, image func(string) string), images ...string) {
	t.Helper()
	if dir := os.Getenv(unprivileged); dir != "" {
		test(t, func(name string) string { return "docker-archive:" + filepath.Join(dir, filepath.Base(name)) + ".tar" })
		return
	}
	need(t)
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "fumehood-native-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, name := range images {
		file := filepath.Join(dir, filepath.Base(name)) + ".tar"
		if out, err := exec.CommandContext(t.Context(), "docker", "save", "-o", file, name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.Chmod(file, 0o644); err != nil { //nolint:gosec // the other user reads it
			t.Fatal(err)
		}
	}
	probe := filepath.Join(dir, "probe")
	if err := errors.Join(copyFile(conformance.BuildProbe(t), probe), os.Chmod(probe, 0o755)); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	home, program := filepath.Join(dir, "home"), filepath.Join(dir, "program")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	err = errors.Join(err, os.WriteFile(program, text, 0o755), os.Mkdir(home, 0o700), os.Chown(home, stranger, stranger), os.Chmod(dir, 0o755)) //nolint:gosec // as above
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.run", "^" + t.Name() + "$"}
	update := flag.Lookup("update-promises").Value.String() == "true"
	if update {
		args = append(args, "-update-promises")
	}
	module := []string{"go.mod", "docs/promises.json", "docs/promises.md"} // what the record of promises needs
	for _, file := range module {
		to := filepath.Join(home, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), copyFile(filepath.Join("../..", file), to), os.Chown(filepath.Dir(to), stranger, stranger), os.Chown(to, stranger, stranger)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = home
	cmd.Env = []string{
		unprivileged + "=" + dir, "HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH"), tier.Variable + "=" + os.Getenv(tier.Variable),
		"FUMEHOOD_PROBE=" + probe,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, file := range module {
		if !update {
			break
		}
		if err := copyFile(filepath.Join(home, file), filepath.Join("../..", file)); err != nil {
			t.Error(err)
		}
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644) //nolint:gosec // files of this repository
}

func TestProvider_Start_rootless(t *testing.T) {
	t.Parallel()
	asUser(t, rootlessStart, busybox)
}

func rootlessStart(t *testing.T, image func(string) string) {
	p := newProvider(t, native.Options{})
	dir := t.TempDir()
	sb := start(t, p, fumehood.Spec{Image: image(busybox), Mounts: []fumehood.Mount{{Host: dir, Container: "/rw", Writable: true}}})
	for script, want := range map[string]string{
		"id -u; id -g": "0\n0",
		"awk '{print $1, $2, $3}' /proc/self/uid_map /proc/self/gid_map": "0 54321 1\n0 54321 1",
		"stat -c %u:%g /etc/passwd /rw":                                  "0:0\n0:0",
		"echo of the sandbox > /rw/new && stat -c %u /rw/new":            "0",
		"echo x > /dev/null; stat -c %t:%T /dev/null /dev/urandom":       "1:3\n1:9",
	} {
		if got := run(t, sb, script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	if got := run(t, sb.As("0"), "rm -r /etc && mkdir /etc && ls -A /etc; id -u"); got != "0" {
		t.Errorf("got %q", got)
	}
	_, err := sb.As("1").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	conformance.WantError(t, err, fumehood.ErrUnsupported)
	_, err = p.Start(t.Context(), fumehood.Spec{Image: image(busybox), User: "1"})
	conformance.WantError(t, err, fumehood.ErrUnsupported)
}

func TestProvider_Start_rootlessLimits(t *testing.T) {
	t.Parallel()
	asUser(t, rootlessLimits, busybox)
}

func rootlessLimits(t *testing.T, image func(string) string) {
	p := newProvider(t, native.Options{})
	for _, limits := range []fumehood.Limits{{Memory: 64 << 20}, {CPUs: 1}} {
		_, err := p.Start(t.Context(), fumehood.Spec{Image: image(busybox), Limits: limits})
		conformance.WantError(t, err, fumehood.ErrUnsupported)
	}
	var log bytes.Buffer
	p = newProvider(t, native.Options{AllowUnenforcedLimits: true, Logger: slog.New(slog.NewTextHandler(&log, nil)), StateDir: filepath.Join(t.TempDir(), "state")})
	sb := start(t, p, fumehood.Spec{Image: image(busybox), Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 60}})
	if got := strings.Join(sb.Info().Unenforced, " "); got != "memory swap cpus" {
		t.Errorf("not enforced: %q", got)
	}
	if !strings.Contains(log.String(), `limits="memory cpus"`) || !strings.Contains(log.String(), "without control groups") {
		t.Errorf("the log has %s", log.String())
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "for i in $(seq 100); do sleep 9 & done"}, Timeout: time.Minute})
	if err != nil || res.Success() || !strings.Contains(res.Stderr.Text(), "fork") {
		t.Errorf("there is no limit of processes: %v, %+v: %s", err, res, res.Stderr.Text())
	}
	sb = start(t, p, fumehood.Spec{Image: image(busybox), Limits: fumehood.Limits{Memory: 64 << 20}})
	for name, script := range map[string]string{
		"one process":    "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null",
		"many processes": "for i in 1 2 3 4 5 6; do head -c 20000000 /dev/zero | tail -c 20000000 | sleep 1 & done; wait",
	} {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, Timeout: time.Minute})
		if err != nil || res.Usage.OOMKills == 0 {
			t.Errorf("%s: %v, %+v", name, err, res)
		}
	}
	res, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"tail", "-c", "200000000", "/dev/zero"}, Timeout: time.Minute})
	if err != nil || res.Outcome != fumehood.OutOfMemory {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestProvider_Promises_rootless(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI)
	asUser(t, rootlessPromises, busybox)
}

func rootlessPromises(t *testing.T, image func(string) string) {
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, native.Options{})
	exceptions := conformance.NoStop("sandboxes cannot be kept")
	exceptions["errors/forbidden file is ErrPermission"] = conformance.RootMayAll
	conformance.Run(t, conformance.Harness{
		Column: "native busybox rootless", Probe: "/probe", Users: conformance.Users{Name: "daemon", UID: 1, GID: 1}, Exceptions: exceptions,
		Start: func(t *testing.T) fumehood.Sandbox {
			sb := start(t, p, fumehood.Spec{Image: image(busybox)})
			if err := sb.WriteFile(t.Context(), "/probe", program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			return sb
		},
	})
}
