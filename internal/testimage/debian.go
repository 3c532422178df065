package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// release is what os-release says about the system that this program runs on.
type release struct{ id, codename string }

// debian returns this system's release, or an error that says why the packages can't be had.
func debian() (release, error) {
	var r release
	data, err := os.ReadFile("/etc/os-release")
	if err == nil {
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch value = strings.Trim(value, `"'`); key {
			case "ID":
				r.id = value
			case "VERSION_CODENAME":
				r.codename = value
			}
		}
	}
	if (r.id != "debian" && r.id != "ubuntu") || r.codename == "" {
		return r, errors.New("no registry answered, and this is no Debian or Ubuntu whose packages could be used instead: " +
			"let the Docker Engine reach a registry (see 'docker pull busybox:stable-musl')")
	}
	return r, nil
}

// mirror is where apt gets this release from; empty if apt doesn't say, and mmdebstrap then knows one.
func (r release) mirror(ctx context.Context) string {
	out, err := program{}.output(ctx, "apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == r.codename && f[1] == "main" {
			return f[2]
		}
	}
	return ""
}

// aptProxy is the proxy that apt uses, as an environment variable for mmdebstrap; nil if there is none.
func aptProxy(ctx context.Context) []string {
	out, err := program{}.output(ctx, "apt-config", "shell", "P", "Acquire::http::Proxy")
	_, value, found := strings.Cut(strings.TrimSpace(out), "=")
	value = strings.Trim(value, "'")
	if err != nil || !found || value == "" || value == "DIRECT" || os.Getenv("http_proxy") != "" {
		return nil
	}
	return []string{"http_proxy=" + value}
}

// needMmdebstrap installs mmdebstrap if it is missing. It does what debootstrap does in a third of the time.
func needMmdebstrap(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("no registry answered, and mmdebstrap needs root: run this as root once, " +
			"or let the Docker Engine reach a registry")
	}
	if _, err := exec.LookPath("mmdebstrap"); err == nil {
		return nil
	}
	say("installing mmdebstrap")
	// An update that fails for one source of many is no reason to give up: the installation decides.
	_, _ = program{}.output(ctx, "apt-get", "update", "-q")
	_, err := program{}.output(ctx, "apt-get", "install", "-yq", "--no-install-recommends", "mmdebstrap")
	return err
}

// debianTree makes a minimal Debian with some packages more.
func debianTree(packages ...string) func(ctx context.Context, dir, arch string, load func(context.Context, tree) error) error {
	return func(ctx context.Context, dir, _ string, load func(context.Context, tree) error) error {
		r, err := debian()
		if err != nil {
			return err
		}
		if err := needMmdebstrap(ctx); err != nil {
			return err
		}
		root := filepath.Join(dir, "root")
		args := []string{
			// In namespaces of its own, what mmdebstrap mounts and starts is gone whatever way it ends.
			"--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase",
			"--include=" + strings.Join(packages, ","),
		}
		switch r.id {
		case "ubuntu":
			args = append(args, "--components=main,universe") // where Debian has one
		case "debian":
			args = append(args, "--include=usr-is-merged") // else apt chooses usrmerge, which takes all of Perl
		}
		say("making a Debian with %s", strings.Join(packages, ", "))
		args = append(args, r.codename, root)
		if m := r.mirror(ctx); m != "" {
			args = append(args, m)
		}
		if _, err := (program{env: aptProxy(ctx), kill: true}).output(ctx, "unshare", args...); err != nil {
			return err
		}
		if err := clean(root); err != nil {
			return err
		}
		say("loading it into the Engine")
		return loadFolder(ctx, root, load)
	}
}

// clean removes from a fresh Debian tree what only takes room and what tells of this machine, and adds
// the user tester.
func clean(root string) error {
	remove := []string{
		"var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/debconf/*-old", "var/cache/ldconfig/*", "var/log/*",
		"var/lib/dpkg/*-old", "etc/resolv.conf", "etc/hostname", "etc/hosts", "etc/apt/sources.list.d/*",
		"etc/apt/apt.conf.d/*proxy*", "usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "dev/*",
		"tmp/*", "run/*", "root/.wget-hsts",
	}
	for _, pattern := range remove {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	for _, empty := range []string{"etc/apt/sources.list", "etc/machine-id"} {
		if err := os.WriteFile(filepath.Join(root, empty), nil, 0o644); err != nil {
			return err
		}
	}
	for name, line := range map[string]string{
		"etc/passwd": testerPasswd("/bin/bash"), "etc/group": testerGroup, "etc/shadow": "tester:*:19000:0:99999:7:::\n",
	} {
		if err := appendTo(filepath.Join(root, name), line); err != nil {
			return err
		}
	}
	home := filepath.Join(root, "home/tester")
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	return os.Chown(home, testerID, testerID)
}

const (
	testerID    = 1000
	testerGroup = "tester:x:1000:\n"
)

func testerPasswd(shell string) string {
	return "tester:x:1000:1000:tester:/home/tester:" + shell + "\n"
}

func appendTo(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// loadFolder hands a folder over as tar makes it, with owners, links and capabilities.
func loadFolder(ctx context.Context, root string, load func(context.Context, tree) error) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "tar", "--create", "--numeric-owner", "--sort=name", "--xattrs", "--directory", root, ".")
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	loadErr := load(ctx, out)
	_ = out.Close() // if the engine did not want it all, tar ends too
	if err := cmd.Wait(); err != nil && loadErr == nil {
		return fmt.Errorf("tar: %w\n%s", err, stderr.String())
	}
	return loadErr
}

// program is how to run one of the programs that this one needs.
type program struct {
	dir  string
	env  []string // added to this process's
	kill bool     // end it by SIGKILL at once, not by SIGTERM first
}

// output runs the program and returns what it printed. On failure the error has the end of it.
func (p program) output(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"), p.env...)
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if !p.kill {
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	}
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: %w", name, ctx.Err())
	}
	return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tail(stdout.String()+stderr.String()))
}

// tail is the last lines of a program's output.
func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
