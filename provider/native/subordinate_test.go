//go:build linux && (amd64 || arm64)

package native_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// withIDs runs this test as a user with subordinate ids.
func withIDs(t *testing.T, test func(t *testing.T), images ...string) {
	t.Helper()
	asUserWith(t, rights{ids: true, images: images}, test)
}

func TestProvider_Start_subordinate(t *testing.T) {
	t.Parallel()
	withIDs(t, subordinateStart)
}

func subordinateStart(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	p := newProvider(t, native.Options{CacheDir: cache})
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // for the sandbox's users
		t.Fatal(err)
	}
	sb := start(t, p, fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir, Container: "/rw", Writable: true}}})
	for script, want := range map[string]string{
		"awk '{print $1, $2, $3}' /proc/self/uid_map":           "0 54321 1\n1 400000 65535",
		"awk '{print $1, $2, $3}' /proc/self/gid_map":           "0 54321 1\n1 500000 65535",
		"id -u; id -g; id -G":                                   "0\n0\n0",
		"stat -c %u:%g /etc/passwd /rw":                         "0:0\n0:0",
		"echo x > /new && chown 7:8 /new && stat -c %u:%g /new": "7:8",
		"stat -c %u:%g:%a /home/tester":                         "1000:1000:755",
	} {
		if got := run(t, sb, script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	// The kernel shows groups of the host as 65534 there.
	shared := filepath.Join(filepath.Dir(os.Getenv("HOME")), "shared")
	reader := start(t, p, fumehood.Spec{Image: busybox, User: "65534:65534", Mounts: []fumehood.Mount{{Host: shared, Container: "/shared"}}})
	if got := run(t, reader, "cat /shared/of-group 2>&1 || true"); !strings.Contains(got, "Permission denied") {
		t.Errorf("a group of the host's user: got %q", got)
	}
	if got := run(t, sb.As("tester"), "id -u; id -g; cat /proc/self/status | grep CapEff; touch /rw/of-tester && stat -c %u /rw/of-tester; rm /rw/of-tester; touch /etc/x 2>&1 || true"); !strings.HasPrefix(got, "1000\n1000\nCapEff:\t0000000000000000\n1000\ntouch: /etc/x: Permission denied") {
		t.Errorf("got %q", got)
	}
	if info := sb.Info(); info.OneUser {
		t.Errorf("%+v", info)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed, err := p.Cleanup(t.Context(), provider.CleanupOptions{Caches: true})
	if err != nil {
		t.Error(err, removed)
	}
	for _, dir := range []string{"layers", "tmp"} {
		left, err := filepath.Glob(cache + "/images-of-400000-500000/" + dir + "/*")
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// Layers whose files the user itself may neither read nor remove.
func TestProvider_Start_subordinateLayers(t *testing.T) {
	t.Parallel()
	withIDs(t, subordinateLayers)
}

func subordinateLayers(t *testing.T) {
	owned := func(f layerFile, uid, gid int, mode int64) layerFile {
		f.Uid, f.Gid, f.Mode = uid, gid, mode
		return f
	}
	folder := func(name string, uid, gid int, mode int64) layerFile {
		return owned(layerFile{tar.Header{Name: name, Typeflag: tar.TypeDir}, ""}, uid, gid, mode)
	}
	hard := layerFile{tar.Header{Name: "shut/hard", Linkname: "shut/file", Typeflag: tar.TypeLink, Mode: 0o600, Uid: 9, Gid: 9}, ""}
	h := hostile{files: []layerFile{
		folder(".", 5, 6, 0o500), folder("shut", 7, 8, 0), owned(file("shut/file", "x"), 9, 9, 0o600), hard, owned(file("beyond", "x"), 70000, 1<<31, 0o4711),
		folder("other", 7, 8, 0o700), owned(file("other/file", "x"), 7, 8, 0o644), link("other", "shut"), // replaced
		owned(link("link", "/etc/passwd"), 3, 4, 0o777), owned(file("twice", "x"), 3, 4, 0o644), owned(file("twice", "y"), 0, 0, 0o444), folder("plain", 0, 0, 0o111),
	}}
	p, image := h.provider(t, native.Options{})
	sb := start(t, p, fumehood.Spec{Image: image})
	for path, want := range map[string]string{
		"/shut": "7:8:0", "/shut/file": "9:9:600", "/shut/hard": "9:9:600", "/beyond": "65534:65534:4711",
		"/link": "3:4:777", "/twice": "0:0:444", "/plain": "0:0:111", "/other": "0:0:777", "/etc/passwd": "0:0:644",
	} {
		if got := run(t, sb, "stat -c %u:%g:%a "+path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if removed, err := p.Cleanup(t.Context(), provider.CleanupOptions{Caches: true}); err != nil {
		t.Error(err, removed)
	}
	left, err := filepath.Glob(filepath.Dir(strings.TrimPrefix(image, "docker-archive:")) + "/cache/images-of-400000-500000/[lt][am][yp]*/*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestProvider_Promises_subordinate(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	withIDs(t, func(t *testing.T) {
		promisesOf(t, conformance.Harness{
			Column: "native debian subordinate", Users: conformance.Users{Name: "tester", UID: 1000, GID: 1000},
			Exceptions: map[string]conformance.Exception{"errors/forbidden file is ErrPermission": conformance.RootMayAll},
		}, debian, false)
	}, debian, static)
}

func TestProvider_Promises_subordinatePod(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	withIDs(t, func(t *testing.T) {
		promisesOf(t, conformance.Harness{
			Column: "native compose project busybox subordinate", Users: conformance.Users{Name: "tester", UID: 1000, GID: 1000},
			Exceptions: map[string]conformance.Exception{"errors/forbidden file is ErrPermission": conformance.RootMayAll},
		}, busybox, true)
	})
}

// What reads a sandbox's packets has no rights beyond those of the user.
func TestNetwork_helper_rootless(t *testing.T) {
	t.Parallel()
	needNetwork(t)
	withIDs(t, helperRights)
}

func helperRights(t *testing.T) {
	p := newProvider(t, native.Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	sb := start(t, p, fumehood.Spec{Image: busybox, Network: bridge})
	pid := helperOf(t, sb)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t54321\t54321\t54321\t54321", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("no %q in %s", want, status)
		}
	}
	if got := run(t, sb, "ip address show dev eth0 | grep -o 'inet [^ ]*'; ip route | grep -c prohibit; cat /etc/resolv.conf"); !strings.HasPrefix(got, "inet 10.201.0.100/24\n") || !strings.HasSuffix(got, "nameserver 10.201.0.3") {
		t.Errorf("got %s", got)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the lost network is noticed", func() bool { return sb.Check(t.Context()) != nil })
	conformance.WantError(t, sb.Check(t.Context()), fumehood.ErrBroken)
	single := start(t, p, fumehood.Spec{Image: busybox, Network: bridge})
	pid = helperOf(t, single)
	if err := single.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the helper goes on: %v", err)
	}
}

func TestNetwork_reach_rootless(t *testing.T) {
	if os.Getenv(unprivileged) != "" {
		reach(t)
		return
	}
	t.Parallel()
	tier.Need(t, tier.All)
	needNetwork(t)
	inSite(t, func(t *testing.T) {
		testReach(t, func(t *testing.T) { withIDs(t, reach, debian, static) })
	})
}
