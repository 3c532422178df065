//go:build linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// unprivileged is set if this program runs as another user.
const unprivileged = "FUMEHOOD_TEST_UNPRIVILEGED"

// stranger is the id of that user. It has no entry in any file.
const stranger = 54321

// strangersGroup is a supplementary group of that user.
const strangersGroup = 4242

// asUser runs this test as a user without rights, in a process of its own that calls test. The only image is busybox.
func asUser(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	asUserWith(t, rights{}, test)
}

// rights are what the user of a test has.
type rights struct {
	groups func(t *testing.T) []string // makes control groups of the user; nil for none
	ids    bool                        // subordinate ids, and the device of network helpers
	images []string                    // besides busybox
	runsc  bool                        // the program on the PATH
}

// asUserWith is asUser with rights.
func asUserWith(t *testing.T, r rights, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(unprivileged) != "" {
		test(t)
		return
	}
	need(t)
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	setpriv := tier.Program(t, tier.CI, "setpriv")
	if r.ids {
		tier.Program(t, tier.CI, "newuidmap")
		tier.Program(t, tier.CI, "newgidmap")
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
	probe := filepath.Join(dir, "probe")
	if strings.Contains(t.Name(), "Promises") { // building takes a second
		text, err := os.ReadFile(conformance.BuildProbe(t))
		if err := errors.Join(err, files.WriteProgram(probe, text, 0o755)); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
	}
	home, program, shared := filepath.Join(dir, "home"), filepath.Join(dir, "program"), filepath.Join(dir, "shared")
	if err := errors.Join(os.Mkdir(shared, 0o777), os.Chown(shared, stranger, stranger)); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	ofOther(t, shared)
	grouped := filepath.Join(shared, "of-group")
	if err := errors.Join(os.WriteFile(grouped, []byte("x"), 0o640), os.Chown(grouped, 70_000, strangersGroup), os.Chmod(grouped, 0o640)); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(self, program); err != nil { // another file system
		text, err := os.ReadFile(self)
		if err := errors.Join(err, files.WriteProgram(program, text, 0o755)); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
	}
	err = errors.Join(os.Mkdir(home, 0o700), os.Chown(home, stranger, stranger), os.Chmod(dir, 0o755)) //nolint:gosec // as above
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.run", "^" + t.Name() + "$"}
	update := flag.Lookup("update-promises").Value.String() == "true"
	if update {
		args = append(args, "-update-promises")
	}
	images := filepath.Join(home, ".cache", "fumehood-test")
	if err := errors.Join(os.MkdirAll(images, 0o755), os.Chown(filepath.Dir(images), stranger, stranger)); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	for _, image := range append(r.images, busybox) {
		archive := testimages.Archive(t, image)
		if err := copyFile(archive, filepath.Join(images, filepath.Base(archive))); err != nil {
			t.Fatal(err)
		}
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
		unprivileged + "=1", "HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH"), tier.Variable + "=" + os.Getenv(tier.Variable),
		"FUMEHOOD_PROBE=" + probe,
	}
	if r.runsc {
		text, err := os.ReadFile(withRuntime(t, "runsc").Runtime)
		if err := errors.Join(err, files.WriteProgram(filepath.Join(dir, "runsc"), text, 0o755)); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	}
	enter := "set -e\n"
	if r.groups != nil {
		enter += "for d in " + strings.Join(r.groups(t), " ") + "; do echo $$ > $d/cgroup.procs; done\n"
	}
	if r.ids {
		enter += asSubordinate(t, dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}
	enter += fmt.Sprintf(`exec %s --reuid=%d --regid=%d --groups=%d "$0" "$@"`, setpriv, stranger, stranger, strangersGroup)
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", enter}, cmd.Args...)
	tier.Again(t, cmd)
	for _, file := range module {
		if !update {
			break
		}
		if err := copyFile(filepath.Join(home, file), filepath.Join("../..", file)); err != nil {
			t.Error(err)
		}
	}
}

// asSubordinate returns commands that give the user subordinate ids and the device of tunnels, in a mount namespace.
func asSubordinate(t *testing.T, dir string) string {
	t.Helper()
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	script := "mount --make-rprivate /\n"
	for file, text := range map[string]string{
		"passwd": string(passwd) + fmt.Sprintf("stranger:x:%d:%d::/:/bin/sh\n", stranger, stranger),
		"subuid": "other:1:65536\nstranger:300000:99\nstranger:400000:65536\n", "subgid": fmt.Sprintf("%d:500000:65535\n", stranger),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil { //nolint:gosec // every user may read it
			t.Fatal(err)
		}
		script += "mount --bind " + filepath.Join(dir, file) + " /etc/" + file + "\n"
	}
	return script + "mount -t tmpfs tmpfs /dev/net\nmknod -m 666 /dev/net/tun c 10 200\n"
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
	asUser(t, rootlessStart)
}

func rootlessStart(t *testing.T) {
	p := newProvider(t, native.Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	dir := t.TempDir()
	sb := start(t, p, fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir, Container: "/rw", Writable: true}}})
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
	if !sb.Info().OneUser {
		t.Errorf("%+v", sb.Info())
	}
	_, err := sb.As("1").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
	conformance.WantError(t, err, fumehood.ErrUnsupported)
	_, err = p.Start(t.Context(), fumehood.Spec{Image: busybox, User: "1"})
	conformance.WantError(t, err, fumehood.ErrUnsupported)
	conformance.Tmpfs(t, p, fumehood.Spec{Image: busybox}, 0)
}

func TestProvider_Start_rootlessLimits(t *testing.T) {
	t.Parallel()
	asUser(t, rootlessLimits)
}

func rootlessLimits(t *testing.T) {
	p := newProvider(t, native.Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	for _, limits := range []fumehood.Limits{{Memory: 64 << 20}, {CPUs: 1}} {
		_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Limits: limits})
		conformance.WantError(t, err, fumehood.ErrUnsupported)
	}
	var log bytes.Buffer
	p = newProvider(t, native.Options{CacheDir: filepath.Join(t.TempDir(), "cache"), AllowUnenforcedLimits: true, Logger: slog.New(slog.NewTextHandler(&log, nil)), StateDir: filepath.Join(t.TempDir(), "state")})
	sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 60}})
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
	sb = start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20}})
	for name, script := range map[string]string{
		"one process":    "head -c 200000000 /dev/zero | tail -c 200000000 > /dev/null",
		"many processes": "for i in 1 2 3 4 5 6; do head -c 20000000 /dev/zero | tail -c 20000000 | sleep 3 & done; wait",
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

// shareMemory checks that memory which processes share counts, and that of a process whose first thread has exited, also
// without control groups.
func shareMemory(t *testing.T) {
	p := newProvider(t, native.Options{AllowUnenforcedLimits: true})
	sb := start(t, p, fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 64 << 20}})
	for name, script := range map[string]string{
		"shared":   "fill(mmap.mmap(-1, 600 << 20))",
		"/dev/shm": "f = open('/dev/shm/x', 'w+b'); f.truncate(60 << 20); a = b'x' * (20 << 20); fill(mmap.mmap(f.fileno(), 0))",
		"thread": "threading.Thread(target=lambda: (time.sleep(1), fill(bytearray(600 << 20)))).start()\n" +
			"ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)",
	} {
		define := "import ctypes, mmap, platform, threading, time\ndef fill(m):\n  for i in range(0, len(m), 4096): m[i] = 1\n  time.sleep(10)\n"
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", define + script}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.OutOfMemory {
			t.Errorf("%s: %v, %+v", name, err, res)
		}
	}
}

// Control groups that root has handed over by chown enforce the limits.
func TestProvider_Start_rootlessCgroups(t *testing.T) {
	t.Parallel()
	asUserWith(t, rights{groups: ownedGroups}, rootlessCgroups)
}

func rootlessCgroups(t *testing.T) {
	p := newProvider(t, native.Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	several := start(t, p, fumehood.Spec{Compose: composeFile(t, `services:
  default: {image: `+busybox+`, command: sleep infinity}
  other: {image: `+busybox+`, command: sleep infinity, mem_limit: 64m}
`)})
	if got := in(t, several, "other", "cd /sys/fs/cgroup; cat memory.max memory/memory.limit_in_bytes 2>/dev/null"); got != "67108864" {
		t.Errorf("limit of the first project's service: %q", got)
	}
	sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 60}})
	if got := sb.Info().Unenforced; len(got) > 0 {
		t.Errorf("not enforced: %v", got)
	}
	checkDiagnosis(t, map[string]provider.Status{"users": provider.StatusWarn, "network": provider.StatusNote})
	files, want := "memory/memory.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us", "67108864\n60\n100000"
	if cgroups.IsCgroup2UnifiedMode() {
		files, want = "memory.max memory.swap.max pids.max cpu.max", "67108864\n0\n60\n100000 100000"
	}
	if got := run(t, sb, "cd /sys/fs/cgroup; cat "+files); got != want {
		t.Errorf("got %q", got)
	}
	thaw, err := sb.Freeze(t.Context())
	if err == nil {
		err = thaw(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"tail", "-c", "200000000", "/dev/zero"}, Timeout: time.Minute})
	if err != nil || res.Outcome != fumehood.OutOfMemory {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestProvider_Promises_rootless(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI)
	asUser(t, rootlessPromises)
}

func TestProvider_Promises_rootlessCgroups(t *testing.T) {
	t.Parallel()
	if !cgroups.IsCgroup2UnifiedMode() { // scripts/test-cgroup2 runs it
		tier.Need(t, tier.All)
	}
	asUserWith(t, rights{groups: ownedGroups}, rootlessPromises)
}

func rootlessPromises(t *testing.T) {
	promisesOfOneUser(t, "native busybox rootless", false)
}

func TestProvider_Promises_rootlessPod(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	asUser(t, func(t *testing.T) { promisesOfOneUser(t, "native compose project busybox rootless", true) })
}

// promisesOfOneUser checks the promises for sandboxes, or for projects, whose only user is root.
func promisesOfOneUser(t *testing.T, column string, project bool) {
	exceptions := oneUser()
	exceptions["errors/forbidden file is ErrPermission"] = conformance.RootMayAll
	promisesOf(t, conformance.Harness{
		Column: column, Users: conformance.Users{Name: "daemon", UID: 1, GID: 1}, Exceptions: exceptions,
	}, busybox, project)
}

// promisesOf checks the promises for sandboxes of an image, or for projects of busybox.
func promisesOf(t *testing.T, h conformance.Harness, image string, project bool) {
	t.Helper()
	promisesWith(t, native.Options{}, h, image, project)
}

// promisesWith is promisesOf for a provider with options.
func promisesWith(t *testing.T, opts native.Options, h conformance.Harness, image string, project bool) {
	t.Helper()
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	if image == busybox {
		opts.CacheDir = filepath.Join(t.TempDir(), "cache")
	}
	p := newProvider(t, opts)
	probed := func(t *testing.T, sb fumehood.Sandbox) fumehood.Sandbox {
		if err := sb.WriteFile(t.Context(), "/probe", program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		return sb
	}
	h.Probe = "/probe"
	spec := func(t *testing.T, text string) fumehood.Spec {
		if project {
			return fumehood.Spec{Compose: composeFile(t, text)}
		}
		return fumehood.Spec{Image: image}
	}
	h.Start = func(t *testing.T) fumehood.Sandbox { return probed(t, start(t, p, spec(t, twoPrograms))) }
	h.StartKept = func(t *testing.T) fumehood.Sandbox { return probed(t, keep(t, p, spec(t, twoWaiting))) }
	conformance.Run(t, h)
}

// stopKept is the promise that needs a kept sandbox.
const stopKept = "stop/stop ends commands and keeps the sandbox"

// notKept returns the exception of a provider that cannot keep sandboxes.
func notKept(p *native.Provider, why string) conformance.Exception {
	return conformance.Exception{Reason: why + "; ErrUnsupported", Check: func(t *testing.T, _ *conformance.Case) {
		_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Keep: true, Name: "kept"})
		conformance.WantError(t, err, fumehood.ErrUnsupported)
	}}
}

// oneUser returns the exceptions of sandboxes whose only user is root.
func oneUser() map[string]conformance.Exception {
	all := map[string]conformance.Exception{}
	refused := conformance.Exception{Reason: "root is the only user; ErrUnsupported", Check: func(t *testing.T, c *conformance.Case) {
		cmd := c.Probe("exit", "0")
		cmd.User = "1"
		_, err := c.Sandbox.Exec(t.Context(), cmd)
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		as := c.Sandbox.As("1")
		_, err = as.Stat(t.Context(), c.Dir)
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		conformance.WantError(t, as.WriteFile(t.Context(), c.Path("new"), nil, fumehood.WriteOptions{}), fumehood.ErrUnsupported)
	}}
	for _, name := range []string{
		"exec/commands run as a named user", "exec/commands run as a numeric user", "exec/commands run as any UID and GID",
		"rlimits/processes of a user are limited", "users/As sets the commands' default user", "users/As sets the owner of new files",
		"users/As enforces the user's permissions", "users/walk continues past unreadable directories",
	} {
		all[name] = refused
	}
	for _, name := range []string{"users/file gets the named owner if permitted", "users/chown changes trees but no link targets"} {
		all[name] = conformance.Exception{Reason: "all files belong to root; an error", Check: func(t *testing.T, c *conformance.Case) {
			if err := c.Sandbox.Chown(t.Context(), c.Path("here"), "1:1"); err == nil {
				t.Error("a file got an owner that does not exist")
			}
			if got := run(t, c.Sandbox, "stat -c %u:%g "+c.Path("here")); got != "0:0" {
				t.Errorf("the owner is %s", got)
			}
		}}
	}
	return all
}
