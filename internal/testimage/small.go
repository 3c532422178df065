package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// staticTree is one static program of ours at /static, and not even a folder besides.
func staticTree(ctx context.Context, dir, arch string, load func(context.Context, tree) error) error {
	static := filepath.Join(dir, "static")
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOFLAGS="}
	_, err := program{env: env}.output(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", static,
		"github.com/fumehood/fumehood/internal/testimage/static")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(static)
	if err != nil {
		return err
	}
	t := newTreeWriter()
	t.file("static", 0o755, data)
	return t.hand(ctx, load)
}

// busyboxTree is Debian's busybox-static, with a link for each applet.
func busyboxTree(ctx context.Context, dir, _ string, load func(context.Context, tree) error) error {
	if _, err := debian(); err != nil {
		return err
	}
	if _, err := (program{dir: dir}).output(ctx, "apt-get", "download", "-q", "busybox-static"); err != nil {
		if os.Geteuid() != 0 {
			return fmt.Errorf("%w\nrun 'apt-get update' as root and try again", err)
		}
		if _, err := (program{}).output(ctx, "apt-get", "update", "-q"); err != nil {
			say("%v", err) // one bad source of many does no harm: the download decides
		}
		if _, err := (program{dir: dir}).output(ctx, "apt-get", "download", "-q", "busybox-static"); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get left %d packages, not one: %w", len(packages), err)
	}
	if _, err := (program{dir: dir}).output(ctx, "dpkg", "-x", packages[0], dir); err != nil {
		return err
	}
	busybox := filepath.Join(dir, "bin/busybox")
	if _, err := os.Stat(busybox); err != nil { // where /bin and /usr/bin are one
		busybox = filepath.Join(dir, "usr/bin/busybox")
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	applets, err := (program{dir: dir}).output(ctx, busybox, "--list-full")
	if err != nil {
		return err
	}

	t := newTreeWriter()
	for _, name := range []string{"bin", "dev", "etc", "home", "proc", "root", "sbin", "sys", "usr", "usr/bin", "usr/sbin", "var", "var/tmp"} {
		t.folder(name, 0o755, 0)
	}
	t.folder("tmp", 0o1777, 0)
	t.folder("home/tester", 0o755, testerID)
	t.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"+testerPasswd("/bin/sh")))
	t.file("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"+testerGroup))
	t.file("etc/shadow", 0o600, []byte("root:*:19000:0:99999:7:::\ntester:*:19000:0:99999:7:::\n"))
	t.file("bin/busybox", 0o755, data)
	for line := range strings.Lines(applets) {
		if name := strings.TrimSpace(line); name != "" && name != "bin/busybox" && name != "linuxrc" {
			t.link(name, "bin/busybox")
		}
	}
	return t.hand(ctx, load)
}

// treeWriter makes a small tree in memory. Its first failure is kept for hand.
type treeWriter struct {
	data bytes.Buffer
	tar  *tar.Writer
	err  error
}

func newTreeWriter() *treeWriter {
	t := &treeWriter{}
	t.tar = tar.NewWriter(&t.data)
	return t
}

func (t *treeWriter) folder(name string, mode int64, owner int) {
	t.add(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (t *treeWriter) file(name string, mode int64, data []byte) {
	t.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data)
}

func (t *treeWriter) link(name, to string) {
	t.add(&tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o755}, nil)
}

func (t *treeWriter) add(h *tar.Header, data []byte) {
	if t.err == nil {
		t.err = t.tar.WriteHeader(h)
	}
	if t.err == nil {
		_, t.err = t.tar.Write(data)
	}
}

func (t *treeWriter) hand(ctx context.Context, load func(context.Context, tree) error) error {
	if t.err == nil {
		t.err = t.tar.Close()
	}
	if t.err != nil {
		return t.err
	}
	return load(ctx, &t.data)
}
