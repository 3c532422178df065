//go:build linux && (amd64 || arm64)

package native_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/testimages"
)

// file returns the header and the content of a regular file in a layer.
func file(name, content string) layerFile {
	return layerFile{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}, content}
}

func link(name, target string) layerFile {
	return layerFile{tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink, Mode: 0o777}, ""}
}

type layerFile struct {
	tar.Header
	content string
}

// hostile is a layer on top of busybox, and a change of the image's configuration, which may be nil.
type hostile struct {
	files  []layerFile
	config func(*v1.Config)
}

// provider returns a provider with a cache of its own, and the reference of the image.
func (h hostile) provider(t *testing.T, opts native.Options) (*native.Provider, string) {
	t.Helper()
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.tar")
	img, err := tarball.ImageFromPath(testimages.Archive(t, busybox), nil)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(h.layer(t))), nil })
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if h.config != nil {
		h.config(&config.Config)
	}
	if img, err = mutate.Config(img, config.Config); err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(changed, name.MustParseReference("hostile:latest"), img); err != nil {
		t.Fatal(err)
	}
	opts.CacheDir = cmp.Or(opts.CacheDir, filepath.Join(dir, "cache"))
	return newProvider(t, opts), "docker-archive:" + changed
}

func (h hostile) layer(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range h.files {
		f.ModTime = time.Unix(1_500_000_000, 0)
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A mount's target is looked up in the image. Its links must not lead to what the set-up and later guests rely on.
func TestProvider_Start_mountTargets(t *testing.T) {
	t.Parallel()
	misleadMounts(t, native.Options{})
}

func misleadMounts(t *testing.T, opts native.Options) {
	dir := t.TempDir()
	// The first program of a guest of another user has all rights.
	program := "#!/bin/sh\ncp /proc/self/status /proof\n"
	if err := files.WriteProgram(filepath.Join(dir, "guest"), []byte(program), 0o755); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	var files []layerFile
	targets := []string{
		"/.fumehood", "/.fumehood/guest", "/", ".", "..", "../../..", "/proc", "/proc/self", "/proc/sys/kernel", "/proc/acpi", "/sys",
		"/sys/firmware", "/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/proc/self/root", "/proc/self/cwd", "/proc/1/fd/3", "/proc/self/fd/5",
		"/proc/self/fd/6", "/proc/self/fd/7", "/proc/self/fd/8", "/proc/self/fd/9", "/dev/fd/6/guest",
	}
	for i, target := range targets {
		files = append(files, link(fmt.Sprintf("link%d", i), target), link(fmt.Sprintf("two%d", i), fmt.Sprintf("./link%d/.", i)))
	}
	files = append(files, file("srv/data/.keep", ""), link("fine", "../srv/../srv/data"), link("shm", "/dev/shm"))
	p, image := hostile{files: files}.provider(t, opts)
	for i, target := range targets {
		for _, form := range []string{"/link%d", "/two%d"} {
			host := dir
			if strings.HasSuffix(target, "guest") {
				host = filepath.Join(dir, "guest")
			}
			sb, err := p.Start(t.Context(), fumehood.Spec{Image: image, Mounts: []fumehood.Mount{{Host: host, Container: fmt.Sprintf(form, i)}}})
			if err != nil {
				conformance.WantError(t, err, fumehood.ErrConfig)
				continue
			}
			_, err = sb.As("1000").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			proof, _ := sb.ReadFile(t.Context(), "/proof", fumehood.ReadOptions{})
			t.Errorf("mounted at %s; as another user: %v; %s", target, err, proof)
		}
	}
	for at, path := range map[string]string{"/fine": "/srv/data/guest", "/shm": "/dev/shm/guest"} {
		sb := start(t, p, fumehood.Spec{Image: image, Mounts: []fumehood.Mount{{Host: dir, Container: at}}})
		if got, err := sb.As("1000").ReadFile(t.Context(), path, fumehood.ReadOptions{}); err != nil || string(got) != program {
			t.Errorf("%s: got %q, %v", at, got, err)
		}
	}
}

// markerFile makes a file of the host that no sandbox may read or change, and returns its path and a check.
func markerFile(t *testing.T) (path, content string) {
	t.Helper()
	path, content = filepath.Join(t.TempDir(), "marker"), "content of the host's marker"
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // its mode does not protect it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("the marker is %q, %v", got, err)
		}
	})
	return path, content
}

// An image decides what is at the paths that the set-up uses. It must start as if nothing were there, or fail.
func TestProvider_Start_hostileImages(t *testing.T) {
	t.Parallel()
	startHostile(t, native.Options{})
}

func startHostile(t *testing.T, opts native.Options, except ...string) {
	marker, content := markerFile(t)
	up := strings.Repeat("../", 20)
	fifo := func(name string) layerFile {
		return layerFile{tar.Header{Name: name, Typeflag: tar.TypeFifo, Mode: 0o666}, ""}
	}
	disk := func(name string) layerFile {
		return layerFile{tar.Header{Name: name, Typeflag: tar.TypeBlock, Mode: 0o666, Devmajor: 254, Devminor: 0}, ""}
	}
	null := func(name string) layerFile {
		return layerFile{tar.Header{Name: name, Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3}, ""}
	}
	const uid = "sed -n 's/^Uid:.\\([0-9]*\\).*/\\1/p' /proc/self/status"
	for name, c := range map[string]struct {
		hostile
		user, script, want string
		fails              error
	}{
		"proc is a link":          {hostile: hostile{files: []layerFile{link("proc", "/tmp")}}, fails: fumehood.ErrConfig},
		"sys is a file":           {hostile: hostile{files: []layerFile{file("sys", "")}}, fails: fumehood.ErrConfig},
		"dev is a link":           {hostile: hostile{files: []layerFile{link("dev", up+"dev")}}, fails: fumehood.ErrConfig},
		"guest's folder is link":  {hostile: hostile{files: []layerFile{link(".fumehood", up+filepath.Dir(marker))}}, fails: fumehood.ErrConfig},
		"guest's folder is taken": {hostile: hostile{files: []layerFile{file(".fumehood/guest", "#!/bin/sh\n")}}, user: "1000", script: "test $(stat -c %s /.fumehood/guest) -gt 100000 && echo other", want: "other"},
		"etc is a link": {
			hostile: hostile{files: []layerFile{file("srv/.keep", ""), link("etc", up+"srv")}}, script: "wc -l < /srv/hosts", want: "7",
		},
		"etc leads out": {
			hostile: hostile{files: []layerFile{link("etc", up+filepath.Dir(marker))}},
			script:  "wc -l < " + filepath.Dir(marker) + "/hosts", want: "7", // made in the sandbox
		},
		"hosts and passwd are links": {
			hostile: hostile{files: []layerFile{link("etc/hosts", marker), link("etc/hostname", up+marker), link("etc/resolv.conf", "/proc/1/fd/0"), link("etc/passwd", marker)}},
			script:  "test -L /etc/hosts || wc -l < /etc/hosts", want: "7",
		},
		"hosts is a folder":   {hostile: hostile{files: []layerFile{file("etc/hosts/a/b", "")}}, script: "wc -l < /etc/hosts", want: "7"},
		"hosts is a FIFO":     {hostile: hostile{files: []layerFile{fifo("etc/hosts"), fifo("etc/passwd"), fifo("etc/group")}}, user: "7", script: uid, want: "7"},
		"passwd is the log":   {hostile: hostile{files: []layerFile{link("etc/passwd", "/proc/kmsg"), link("etc/group", "/proc/kmsg")}}, user: "7", script: uid, want: "7"},
		"passwd is endless":   {hostile: hostile{files: []layerFile{link("etc/passwd", "/dev/zero")}}, user: "7", script: uid, want: "7"},
		"passwd is huge":      {hostile: hostile{files: []layerFile{file("etc/passwd", strings.Repeat("a:b:c:d:e:f:g\n", 1<<20))}}, user: "7", script: uid, want: "7"},
		"passwd is one line":  {hostile: hostile{files: []layerFile{file("etc/passwd", strings.Repeat("a", 8<<20))}}, user: "7", script: uid, want: "7"},
		"passwd: big numbers": {hostile: hostile{files: []layerFile{file("etc/passwd", "u:x:4294967295:0::/:/\nv:x:-1:0::/:/\n")}}, user: "u", fails: fumehood.ErrConfig},
		"passwd: bad group":   {hostile: hostile{files: []layerFile{file("etc/passwd", "u:x:7:-1::/:/\n")}}, user: "u", fails: fumehood.ErrConfig},
		"group: bad numbers":  {hostile: hostile{files: []layerFile{file("etc/passwd", "u:x:7:7::/:/\n"), file("etc/group", "g:x:-1:u\nh:x:4294967296:u\n")}}, user: "u", script: uid, want: "7"},
		"group is huge": {
			hostile: hostile{files: []layerFile{file("etc/passwd", "u:x:7:7:::\n"), file("etc/group", manyGroups(1<<16))}}, user: "u",
			script: uid, want: "7",
		},
		"working directory in proc": {
			hostile: hostile{config: func(c *v1.Config) { c.WorkingDir = "/proc/self/fd/8" }}, script: "true", fails: fumehood.ErrConfig,
		},
		"working directory of the process": {
			hostile: hostile{config: func(c *v1.Config) { c.WorkingDir = "/proc/self/cwd/../.." }}, script: "cat ../../../../.." + marker + " 2>&1 | grep -c " + content[:7] + " || true", want: "0",
		},
		"working directory is a link": {
			hostile: hostile{files: []layerFile{link("w", up+filepath.Dir(marker))}, config: func(c *v1.Config) { c.WorkingDir = "/w" }},
			script:  "pwd -P; ls -A", want: filepath.Dir(marker), // made in the sandbox, and empty
		},
		"volumes": {
			hostile: hostile{files: []layerFile{file("srv/.keep", ""), link("v", up+"srv")}, config: func(c *v1.Config) {
				c.Volumes = map[string]struct{}{"/v/new": {}, "../../x": {}, "/../../y": {}, "/proc/self/cwd/z": {}}
			}},
			script: "ls -d /x /y /z /srv/new", want: "/srv/new\n/x\n/y\n/z",
		},
		"volume in proc":   {hostile: hostile{config: func(c *v1.Config) { c.Volumes = map[string]struct{}{"/proc/sys/new": {}} }}, fails: fumehood.ErrConfig},
		"variables":        {hostile: hostile{config: func(c *v1.Config) { c.Env = []string{"LD_PRELOAD=/x", "GODEBUG=x", "a", "=b", "PATH="} }}, fails: fumehood.ErrConfig},
		"disk":             {hostile: hostile{files: []layerFile{disk("disk")}}, script: "head -c 1 /disk 2>&1 >/dev/null | grep -c -i 'permi\\|no such'", want: "1"},
		"device null":      {hostile: hostile{files: []layerFile{null("null")}}, script: "head -c 1 /null 2>&1 >/dev/null | grep -c -i 'permi\\|no such'", want: "1"},
		"set-user-id":      {hostile: hostile{files: []layerFile{setUserID("su")}}, user: "1000", script: "cp /bin/busybox /tmp/id; /su", want: "1000"},
		"layers' features": {hostile: hostile{files: []layerFile{redirect("away")}}, script: "ls -a /away | wc -l", want: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(except, name) {
				t.SkipNow()
			}
			t.Parallel()
			p, image := c.provider(t, opts)
			sb, err := p.Start(t.Context(), fumehood.Spec{Image: image, User: c.user})
			if c.fails != nil {
				if err == nil {
					t.Fatal("it starts")
				}
				conformance.WantError(t, err, c.fails)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := run(t, sb, c.script); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if entries, err := os.ReadDir(filepath.Dir(marker)); err != nil || len(entries) != 1 {
				t.Errorf("the host's folder has %v, %v", entries, err)
			}
		})
	}
}

// setUserID is a program that prints its effective user, and belongs to root with the set-user-id bit.
func setUserID(name string) layerFile {
	f := file(name, "#!/bin/sh\nid -u\n")
	f.Mode = 0o4755
	return f
}

// redirect is a folder that overlayfs would read from another place if it trusted the layer's attributes.
func redirect(name string) layerFile {
	return layerFile{tar.Header{
		Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755,
		PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.redirect": "/bin"},
	}, ""}
}

func manyGroups(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "g%d:x:%d:u\n", i, i+1)
	}
	return b.String()
}
