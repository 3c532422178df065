package hostpath

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/owner"
)

// links creates files and links, by their targets, in a folder. It returns the folder's path, which contains no
// links.
func links(t *testing.T, files []string, targets map[string]string) string {
	t.Helper()
	dir := Real(t.TempDir())
	for _, name := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range targets {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	return dir
}

func TestReal(t *testing.T) {
	dir := links(t, []string{"a/b/file"}, map[string]string{
		"to-b": "a/b", "up": "to-b/../..", "chain": "up", "self": "self", "nowhere": "missing/x", "absolute": filepath.Join(os.TempDir(), "..", "x"),
	})
	for path, want := range map[string]string{
		"a/b/file":      "a/b/file",
		"to-b/file":     "a/b/file",
		"up/a":          "a", // the .. is that of a/b
		"chain/to-b":    "a/b",
		"nowhere/y":     "missing/x/y",
		"missing/to-b":  "missing/to-b",
		"self":          "self",
		"a/b/file/more": "a/b/file/more",
	} {
		if got := Real(filepath.Join(dir, path)); got != filepath.Join(dir, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got, want := Real(filepath.Join(dir, "absolute")), Real(filepath.Join(os.TempDir(), "..", "x")); got != want {
		t.Errorf("absolute: %s, not %s", got, want)
	}
	t.Run("proc", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("/proc is Linux's")
		}
		dir := links(t, nil, map[string]string{"cwd": "/proc/self/cwd"})
		if got := Real(filepath.Join(dir, "cwd")); got != "/proc/self/cwd" {
			t.Errorf("the daemon's /proc/self was resolved in this process: %s", got)
		}
	})
}

func TestGate_Inside(t *testing.T) {
	dir := links(t, []string{"project/a/b/file", "other/sub/file", "other/secret"}, map[string]string{
		"project/out": "../other/sub", "project/deep": "a/b", "project/file": "../other/secret",
	})
	g, err := NewGate("the project's folder", filepath.Join(dir, "project"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "project"))
	for path, want := range map[string]bool{
		"a/b/file": true, "a/../a/b/file": true, "deep/file": true, "missing": true,
		"deep/../b/file": true, // a/b/file for the kernel, b/file for who cleans it: both are inside
		"file":           false, "out/file": false, "../other/secret": false,
		"out/../secret":          false, // other/secret for the kernel
		"deep/../../../secret":   false, // outside for who cleans it
		"deep/../../../project":  false,
		"a/b/../../../other/sub": false,
	} {
		if got := g.Inside(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
		if got := g.Inside(filepath.Join(dir, "project") + "/" + path); got != want {
			t.Errorf("absolute %s: %v", path, got)
		}
	}
}

func TestGate_Image(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of images may not have a colon")
	}
	dir := links(t, []string{"own/image.tar", "own/la/yout/index.json", "out/image.tar", "a:b/image.tar"}, map[string]string{
		"own/link": "../out/image.tar", "own/dir": "../out",
	})
	g, err := NewGate("the folder", filepath.Join(dir, "own"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	for ref, want := range map[string]string{ // what is empty is outside
		"python:3.12": "python:3.12", "sha256:00": "sha256:00", "docker-daemon:x": "docker-daemon:x", "": "", "docker-archive:": "docker-archive:",
		"docker-archive:image.tar": "docker-archive:" + own + "/image.tar", "oci-archive:./image.tar:a:b": "oci-archive:" + own + "/image.tar:a:b",
		"oci:la/yout": "oci:" + own + "/la/yout", "oci:" + own + "/la/yout:tag": "oci:" + own + "/la/yout:tag", "oci:.": "oci:" + own,
		"docker-archive:missing.tar": "docker-archive:" + own + "/missing.tar",
	} {
		if got, err := g.Image(ref, own); err != nil || got != want {
			t.Errorf("%s: got %s, %v", ref, got, err)
		}
	}
	for _, path := range []string{"../out/image.tar", "../out/missing.tar", filepath.Join(dir, "out/image.tar"), filepath.Join(dir, "out/missing.tar"), "link", "dir/image.tar", "dir/missing.tar", "/etc/shadow", ".."} {
		for _, kind := range []string{DockerArchive, OCIArchive, OCILayout} {
			_, err := g.Image(kind+":"+path+":tag", own)
			if _, outside := err.(*outsideError); !outside { //nolint:errorlint // nothing else is in the message
				t.Errorf("%s:%s: got %v", kind, path, err)
			}
		}
	}
	if _, err := g.Image("docker-archive:image.tar", filepath.Join(dir, "a:b")); err == nil || !strings.Contains(err.Error(), "colon") {
		t.Errorf("got %v", err)
	}
}

func TestMachine_Unsafe(t *testing.T) {
	linux := machine{goos: "linux", homes: []string{"/home/me"}, state: []string{"/home/me/.local/state/fumehood/docker"}, sockets: []string{"/srv/engine/socket"}, keys: []string{"/srv/me/config"}}
	root := machine{goos: "linux", homes: []string{"/root"}}
	const never, written, safe = "never", "writable", "safe"
	for _, tt := range []struct {
		m     machine
		want  string
		paths []string
	}{
		{linux, never, []string{
			"/", "/etc", "/etc/passwd", "/etc/ssl/certs", "/proc", "/proc/1/root", "/sys/fs/cgroup", "/dev", "/dev/sda", "/dev/shm", "/run/user/1000", "/var",
			"/var/run/x", "/var/lib", "/var/lib/docker/volumes/x", "/boot", "/home", "/home/me", "/home/me/.ssh", "/home/me/.ssh/id_rsa",
			"/home/me/.docker/config.json", "/home/me/.cargo", "/home/you", "/home/you/.aws", "/root", "/root/project", "/srv", "/srv/engine",
			"/srv/me", "/srv/me/config", "/home/me/.local/state/fumehood", "/home/me/.local/state", "/home/me/.local/state/fumehood/docker/box",
		}},
		{linux, written, []string{"/usr", "/usr/local/bin", "/bin/sh", "/lib64", "/home/me/.bashrc", "/home/me/bin", "/home/me/.vim/x", "/home/you/.profile"}},
		{linux, safe, []string{
			"/home/me/project", "/home/me/project/.ssh", "/home/me/.sshx", "/home/you/project", "/tmp", "/tmp/etc", "/opt/x", "/var/lib/data", "/var/log",
			"/dev/shm/x", "/etcetera", "/home/me/.local/state/fumehood/session/one/work", "/work",
		}},
		{root, safe, []string{"/root/project"}},
		{root, never, []string{"/root", "/root/.kube/config"}},
		{machine{goos: "darwin", homes: []string{"/Users/me"}}, never, []string{"/Users/me/.SSH", "/ETC", "/users/me/library/Keychains/x", "/Users/you/.docker"}},
	} {
		if runtime.GOOS == "windows" {
			t.Skip("paths of other systems")
		}
		for _, path := range tt.paths {
			read, write := tt.m.unsafe(path, false), tt.m.unsafe(path, true)
			got := safe
			switch {
			case read != "" && write != "":
				got = never
			case read != "" || write != "":
				got = written
			}
			if got != tt.want {
				t.Errorf("%s: %s, not %s (%q, %q)", path, got, tt.want, read, write)
			}
		}
	}
}

func TestUnsafe(t *testing.T) {
	home := Real(t.TempDir())
	t.Setenv("HOME", home)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(home, "engine", "socket"))
	dir := links(t, []string{"docker.sock", "file"}, map[string]string{
		"etc": "/etc", "ssh": filepath.Join(home, ".ssh"), "sock": "docker.sock", "passwd": "/etc/passwd", "zone": "/etc/timezone",
	})
	if runtime.GOOS == "windows" {
		t.Skip("paths of other systems")
	}
	short, err := os.MkdirTemp("", "s") // a socket's path has at most 104 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	listener, err := net.Listen("unix", filepath.Join(short, "any"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for path, want := range map[string]string{
		dir + "/file": "", dir: "",
		dir + "/docker.sock": whySocket, dir + "/sock": whySocket, dir + "/none/docker.sock": whySocket,
		dir + "/etc": "settings", dir + "/passwd": "settings", dir + "/etc/nothing": "settings",
		dir + "/ssh/key": whyKeys, home: "it contains", home + "/engine": whySocket, home + "/project": "",
		filepath.Join(short, "any"): whyDevice, "/etc/timezone": "", "/etc/localtime": "", dir + "/zone": "settings",
	} {
		if got := Unsafe(path, false); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	if Unsafe("/etc/timezone", true) == "" {
		t.Error("a writable time zone was accepted")
	}
}

func TestGate(t *testing.T) {
	dir := links(t, []string{"own/file", "own/large", "out/file", "named"}, map[string]string{
		"own/link": "../out/file", "own/back": "../own/file", "own/dir": "../out",
	})
	if err := os.WriteFile(filepath.Join(dir, "own/large"), make([]byte, 11), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := NewGate("the folder", filepath.Join(dir, "own"), filepath.Join(dir, "named"))
	if err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		"own/file": "", "own/back": "", "named": "", "own/missing": "",
		"own/link": "is outside the folder", "own/dir/file": "is outside the folder", "out/file": "--allow-read", "own/../out/file": "is outside", "named/../out": "is outside",
		"own": "is not a regular file", "own/large": "is larger than 10 bytes",
	} {
		err := g.File(filepath.Join(dir, path), 10)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := g.Read(filepath.Join(dir, "own/file"), 10); err != nil || string(text) != "content" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := g.Read(filepath.Join(dir, "own/large"), 10); err == nil {
		t.Error("a file that is too large was read")
	}
	for path, says := range map[string]string{"own": "", "own/dir": "outside of the folder", "out": "outside of the folder", "/etc": "it "} {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if why := g.Mount(path, false); (why == "") != (says == "") || !strings.Contains(why, says) {
			t.Errorf("%s: %q", path, why)
		}
		if g.Mount(path, true) == "" {
			t.Errorf("a writable %s was accepted", path)
		}
	}
	if (Gate{}).Inside(dir) {
		t.Error("the zero value accepted a path")
	}
}

// What decides which programs sandboxes execute is nobody's to write, or to read.
func TestUnsafe_native(t *testing.T) {
	state, cache := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("XDG_CACHE_HOME", cache)
	if used, err := os.UserCacheDir(); err != nil || used != cache {
		t.Skip("the cache is elsewhere on this system")
	}
	for _, path := range []string{
		filepath.Join(state, "fumehood", "native"), filepath.Join(state, "fumehood", "native", "box"), cache,
		filepath.Join(cache, "fumehood", "native", "guest"), filepath.Join(cache, "fumehood", "native", "images"),
	} {
		if Unsafe(path, false) == "" {
			t.Errorf("%s was accepted", path)
		}
	}
	if why := Unsafe(filepath.Join(cache, "pip"), true); why != "" {
		t.Errorf("another program's cache: %s", why)
	}
}

func TestUnsafe_secret(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	t.Setenv(owner.SecretVariable, "")
	other := filepath.Join(t.TempDir(), "shared-secret")
	for _, path := range []string{filepath.Join(dir, "fumehood", "secret"), filepath.Join(dir, "fumehood"), dir} {
		if Unsafe(path, false) == "" {
			t.Errorf("%s was accepted", path)
		}
	}
	if why := Unsafe(other, false); why != "" {
		t.Errorf("%s: %s", other, why)
	}
	t.Setenv(owner.SecretVariable, other)
	if Unsafe(other, false) == "" {
		t.Errorf("%s was accepted", other)
	}
}
