package dockertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/test/tier"
)

// Daemon is a separate Docker Engine for one test, with its own data, socket and containerd, and without networks. It
// can be restarted, stopped and killed. Containers outlive its restarts (live restore).
type Daemon struct {
	Host string // its address, in the format of DOCKER_HOST

	t   testing.TB
	dir string
	kind
	socket string
	// containerd is a separate process, as where systemd starts both; it is not restarted. It is nil for a rootless
	// daemon, which starts its own.
	containerd *exec.Cmd
	cmd        *exec.Cmd
	log        *os.File
}

// kind describes how a daemon differs from the default.
type kind struct {
	rootless bool     // see StartRootlessDaemon
	programs string   // the folder of dockerd and the programs that it runs; empty for those on the PATH
	flags    []string // additional flags of dockerd
}

// StartDaemon starts an Engine with copies of the given images of the system's Engine, and stops it at the end of the
// test. If it cannot be started for lack of rights or programs, the test skips, or fails if FUMEHOOD_TIER is set.
func StartDaemon(t testing.TB, images ...string) *Daemon {
	t.Helper()
	return startDaemon(t, kind{}, images)
}

// StartDaemonWith is StartDaemon with additional flags of dockerd.
func StartDaemonWith(t testing.TB, flags []string, images ...string) *Daemon {
	t.Helper()
	return startDaemon(t, kind{flags: flags}, images)
}

// rootlessIDs is the first user id of a rootless daemon.
const rootlessIDs = 1 << 20

// StartRootlessDaemon is StartDaemon for a daemon that is root only in a user namespace, like those that users start
// for themselves. On a machine with control groups of version 1 it enforces no limits. It does not see the folders of
// root.
func StartRootlessDaemon(t testing.TB, images ...string) *Daemon {
	t.Helper()
	return startDaemon(t, kind{rootless: true}, images)
}

// StartNewDaemon starts an Engine of version 28 or newer, which scripts/ensure-engine28 downloads. If it is missing,
// the test skips, or fails with FUMEHOOD_TIER=all.
func StartNewDaemon(t testing.TB, images ...string) *Daemon {
	t.Helper()
	programs, err := programPath("engine28")
	if err != nil {
		tier.Missing(t, tier.All, fmt.Errorf("no newer Engine found; scripts/ensure-engine28 gets one on Debian: %w", err))
	}
	return startDaemon(t, kind{programs: programs}, images)
}

func startDaemon(t testing.TB, k kind, images []string) *Daemon {
	t.Helper()
	tier.NeedDocker(t)
	if err := canStart(); err != nil {
		tier.Missing(t, tier.Quick, err)
	}
	dir, err := os.MkdirTemp("", "dockerd-") // the path of a test's own folder is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, dir: dir, kind: k, socket: filepath.Join(dir, "s"), Host: "unix://" + filepath.Join(dir, "s")}
	if d.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	// The configuration files of the system's daemons must not apply.
	for name, text := range map[string]string{"config.json": "{}", "config.toml": "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if d.rootless {
		if err := os.Symlink("/bin/false", d.in("rootlesskit-docker-proxy")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dir, d.in("config.json")} {
			if err := os.Chown(path, rootlessIDs, rootlessIDs); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		d.containerd = d.run("containerd", "--config", d.in("config.toml"), "--root", d.in("containerd"), "--state", d.in("c"), "--address", d.in("c.sock"))
	}
	d.Start()
	for _, image := range images {
		if err := d.load(image); err != nil {
			t.Fatalf("copy image %s: %v", image, err)
		}
	}
	return d
}

func canStart() error {
	if os.Getuid() != 0 {
		return errors.New("the tests start a separate Docker Engine, which requires root")
	}
	for _, program := range []string{"dockerd", "containerd"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the tests start a separate Docker Engine: %w; scripts/ensure-docker installs one on Debian and Ubuntu", err)
		}
	}
	return nil
}

// StartRunscDaemon starts an Engine with gVisor's runtime, runsc, which scripts/ensure-runsc builds. If it is
// missing, the test skips, or fails with FUMEHOOD_TIER=all.
func StartRunscDaemon(t testing.TB, flags []string, images ...string) *Daemon {
	t.Helper()
	runsc, err := findRunsc()
	if err != nil {
		tier.Missing(t, tier.All, err)
	}
	if err := canStart(); err != nil {
		tier.Missing(t, tier.All, err)
	}
	return StartDaemonWith(t, append([]string{"--add-runtime", "runsc=" + runsc}, flags...), images...)
}

// findRunsc returns the path of runsc in the module's folder bin, or on the PATH.
func findRunsc() (string, error) {
	if path, err := programPath("runsc"); err == nil {
		return path, nil
	}
	path, err := exec.LookPath("runsc")
	if err != nil {
		return "", fmt.Errorf("the test needs gVisor: %w; scripts/ensure-runsc builds it", err)
	}
	return path, nil
}

// programPath returns the path of a program that a script has put into the module's folder bin.
func programPath(name string) (string, error) {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, serr := os.Stat(filepath.Join(dir, "go.mod")); serr == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "bin", name)
	_, err = os.Stat(path)
	return path, err
}

func (d *Daemon) in(name string) string { return filepath.Join(d.dir, name) }

// run starts a program of the daemon.
func (d *Daemon) run(name string, args ...string) *exec.Cmd {
	d.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(d.t.Context()), filepath.Join(d.programs, name), args...)
	cmd.Env = append(os.Environ(), "GOGC=400") // see scripts/ensure-docker
	if d.programs != "" {
		cmd.Env = append(cmd.Env, "PATH="+d.programs+":"+os.Getenv("PATH"))
	}
	cmd.Stdout, cmd.Stderr = d.log, d.log
	// A separate process group keeps the terminal's signals away. A separate network namespace protects the docker0
	// of the system's daemon: a daemon without a bridge removes docker0.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	if d.rootless {
		ids := []syscall.SysProcIDMap{{HostID: rootlessIDs, Size: 1 << 16}}
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = ids, ids, true
		cmd.SysProcAttr.Credential = &syscall.Credential{} // root in the namespace
		// These variables tell dockerd that RootlessKit, which creates these namespaces for users, runs. It also has
		// a program for ports; no ports are published here.
		cmd.Env = append(cmd.Env, "ROOTLESSKIT_STATE_DIR="+d.dir, "XDG_RUNTIME_DIR="+d.dir, "HOME="+d.dir, "PATH="+os.Getenv("PATH")+":"+d.dir)
	}
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	return cmd
}

// daemonWithin limits the start and the stop of a daemon.
const daemonWithin = 90 * time.Second

// Start starts the daemon and returns when it answers.
func (d *Daemon) Start() {
	d.t.Helper()
	args := append([]string{
		"--config-file", d.in("config.json"), "--data-root", d.in("data"), "--exec-root", d.in("exec"),
		"--pidfile", d.in("pid"), "--host", d.Host, "--bridge=none", "--iptables=false", "--ip-forward=false", "--live-restore", "--shutdown-timeout=2",
	}, d.flags...)
	if d.rootless { // the machine's /run belongs to the system
		d.cmd = d.run("sh", append([]string{"-c", `mount -t tmpfs none /run && exec dockerd --rootless "$@"`, "sh"}, args...)...)
	} else {
		d.cmd = d.run("dockerd", append(args, "--containerd", d.in("c.sock"))...)
	}
	for until := time.Now().Add(daemonWithin); ; {
		res, err := at(d.socket).Get("http://docker/_ping")
		if err == nil {
			_ = res.Body.Close()
			return
		}
		if time.Now().After(until) || syscall.Kill(d.cmd.Process.Pid, 0) != nil {
			d.t.Fatalf("the test's dockerd does not answer: %v\n%s", err, d.lastLog())
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Stop stops the daemon by SIGTERM. Containers run on.
func (d *Daemon) Stop() {
	d.t.Helper()
	d.end(syscall.SIGTERM)
}

// Kill kills the daemon. Containers run on.
func (d *Daemon) Kill() {
	d.t.Helper()
	d.end(syscall.SIGKILL)
}

func (d *Daemon) end(sig syscall.Signal) {
	end(d.cmd, sig)
	d.cmd = nil
}

// end signals a program and waits until it has ended.
func end(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(sig)
	over := time.AfterFunc(daemonWithin, func() { _ = cmd.Process.Kill() })
	defer over.Stop()
	_ = cmd.Wait() // the exit code doesn't matter
}

// Freeze makes the daemon hang until Thaw. It returns when all threads have stopped: a running one could still
// answer.
func (d *Daemon) Freeze() {
	d.t.Helper()
	d.signal(syscall.SIGSTOP)
	for {
		err := unix.Waitid(unix.P_PID, d.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			d.t.Fatal(err)
		}
		return
	}
}

// Thaw resumes the daemon.
func (d *Daemon) Thaw() { d.signal(syscall.SIGCONT) }

func (d *Daemon) signal(sig syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Daemon) lastLog() string {
	text, _ := os.ReadFile(d.log.Name()) // empty if it cannot be read
	return string(text[max(0, len(text)-4000):])
}

// remove stops the daemon and removes its files.
func (d *Daemon) remove() {
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(syscall.SIGCONT) // it may be frozen
		d.removeContainers()
	}
	d.end(syscall.SIGTERM)
	end(d.containerd, syscall.SIGTERM)
	_ = d.log.Close()
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		d.t.Error(err)
	}
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // the last mount is listed last
		if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], d.dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH) // if it stays mounted, the next step fails
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Errorf("remove the files of the test's dockerd: %v", err)
	}
}

// removeContainers removes the containers of a failed test, which would outlive the daemon.
func (d *Daemon) removeContainers() {
	res, err := at(d.socket).Get("http://docker/containers/json?all=1")
	if err != nil {
		d.t.Error(err)
		return
	}
	defer res.Body.Close()
	var all []struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&all); err != nil {
		d.t.Error(err)
	}
	for _, c := range all {
		req, err := http.NewRequestWithContext(context.WithoutCancel(d.t.Context()), http.MethodDelete, "http://docker/containers/"+c.ID+"?force=1&v=1", nil)
		if err == nil {
			res, err = at(d.socket).Do(req)
		}
		if err != nil {
			d.t.Error(err)
			continue
		}
		_ = res.Body.Close()
	}
}

// load copies an image from the system's daemon.
func (d *Daemon) load(image string) error {
	c, err := composesdk.Connect(d.t.Context(), composesdk.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	system, ok := strings.CutPrefix(c.Engine.Endpoint(), "unix://")
	if !ok {
		return fmt.Errorf("the daemon at %s is not reached by a unix socket: unset DOCKER_HOST", c.Engine.Endpoint())
	}
	saved, err := at(system).Get("http://docker/images/" + image + "/get")
	if err != nil {
		return err
	}
	defer saved.Body.Close()
	if saved.StatusCode != http.StatusOK {
		return fmt.Errorf("the system's daemon answers %s: build the image with `make images`", saved.Status)
	}
	loaded, err := at(d.socket).Post("http://docker/images/load?quiet=1", "application/x-tar", saved.Body)
	if err != nil {
		return err
	}
	defer loaded.Body.Close()
	text, err := io.ReadAll(loaded.Body)
	if err == nil && (loaded.StatusCode != http.StatusOK || bytes.Contains(text, []byte("errorDetail"))) {
		err = fmt.Errorf("the test's daemon answers %s: %s", loaded.Status, text)
	}
	return err
}

// at returns an HTTP client for a daemon's socket.
func at(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}
