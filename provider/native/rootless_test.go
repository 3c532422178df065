//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Dir = home
	cmd.Env = []string{
		unprivileged + "=" + dir, "HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH"), tier.Variable + "=" + os.Getenv(tier.Variable),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
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
