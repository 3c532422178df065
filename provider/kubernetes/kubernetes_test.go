//go:build linux && amd64

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/test/tier"
)

const (
	debian  = "fumehood-test/python"
	busybox = "fumehood-test/busybox"
	static  = "fumehood-test/static"

	guestImage = "docker.io/fumehood-test/guest:1"
	pauseImage = "docker.io/fumehood-test/pause:1" // see scripts/kubernetes-node
)

func TestMain(m *testing.M) {
	kubernetes.RunReaper()
	ctx := context.Background()
	if conformance.Owner(ctx, os.Stdout, fumehood.Spec{Image: debian}, func(dir string, reap bool) (fumehood.Provider, error) {
		return kubernetes.New(ctx, kubernetes.Options{Kubeconfig: dir, GuestImage: guestImage, NoReaper: !reap})
	}) {
		os.Exit(1)
	}
	code := m.Run()
	if err := endNode(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// cluster is the node of this process's tests.
var cluster struct {
	once sync.Once
	dir  string // empty without a node
	err  error
}

// node returns the kubeconfig of a cluster of one node, which the first test that needs it starts. It skips t where the
// node's programs are missing.
func node(t testing.TB) (kubeconfig string) {
	t.Helper()
	const script = "../../scripts/kubernetes-node"
	tier.Need(t, tier.All)
	if _, err := os.Stat("../../bin/kubernetes/sum"); err != nil {
		tier.Missing(t, tier.All, fmt.Errorf("no programs of a node; `make test-kubernetes` builds them: %w", err))
	}
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.All, errors.New("a node needs root"))
	}
	if dir := os.Getenv("FUMEHOOD_TEST_NODE"); dir != "" { // one that runs already, for work on these tests
		return filepath.Join(dir, "kubeconfig")
	}
	cluster.once.Do(func() {
		parent, err := os.MkdirTemp("", "kube-")
		if err == nil {
			err = os.Chmod(parent, 0o711) //nolint:gosec // Pods in user namespaces reach their files through it
		}
		if cluster.err = err; err != nil {
			return
		}
		cluster.dir = filepath.Join(parent, "n")
		run := func(args ...string) error {
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput() //nolint:noctx // it outlives the test
			if err != nil {
				return fmt.Errorf("%v: %w\n%s", args, err, out)
			}
			return nil
		}
		if cluster.err = run(script, "up", cluster.dir); cluster.err != nil {
			return
		}
		files := []string{}
		for _, ref := range []string{guestImage, pauseImage} {
			file := filepath.Join(parent, fmt.Sprintf("%d.tar", len(files)))
			files = append(files, file)
			if cluster.err = writeGuestImage(file, ref); cluster.err != nil {
				return
			}
		}
		for _, ref := range []string{debian, busybox, static} {
			file := filepath.Join(parent, fmt.Sprintf("%d.tar", len(files)))
			files = append(files, file)
			if cluster.err = run("docker", "save", "-o", file, ref); cluster.err != nil {
				return
			}
		}
		cluster.err = run(append([]string{script, "load", cluster.dir}, files...)...)
	})
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	return filepath.Join(cluster.dir, "kubeconfig")
}

func writeGuestImage(file, ref string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(kubernetes.WriteGuestImage(context.Background(), ref, runtime.GOARCH, f), f.Close())
}

// endNode ends the cluster, if there is one.
func endNode() error {
	if cluster.dir == "" {
		return nil
	}
	out, err := exec.Command("../../scripts/kubernetes-node", "down", cluster.dir).CombinedOutput() //nolint:noctx // no test runs any more
	if err != nil {
		return fmt.Errorf("end the node: %w\n%s", err, out)
	}
	return os.RemoveAll(filepath.Dir(cluster.dir))
}

// newProvider returns a provider of the cluster, which closes with t.
func newProvider(t testing.TB, opts kubernetes.Options) *kubernetes.Provider {
	t.Helper()
	if config := node(t); opts.Kubeconfig == "" {
		opts.Kubeconfig = config
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if opts.GuestImage == "" {
		opts.GuestImage = guestImage
	}
	p, err := kubernetes.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func start(t testing.TB, p fumehood.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// keep starts a kept sandbox, which t removes.
func keep(t testing.TB, p *kubernetes.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	spec.Keep = true
	sb, ctx := start(t, p, spec), context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		plan, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{sb.Info().Name}})
		if err != nil || len(plan) == 0 {
			t.Errorf("remove %s: %v, %v", sb.Info().Name, plan, err)
		}
	})
	return sb
}

// A command runs as the image's user, in the image's folder, with its variables.
func TestProvider_Start(t *testing.T) {
	p := newProvider(t, kubernetes.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "id -u; echo $HOME; pwd"}})
	if err != nil || res.Stdout.Text() != "0\n/root\n/\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A start fails with the cluster's reason, and leaves nothing.
func TestProvider_Start_reasons(t *testing.T) {
	t.Parallel()
	p := newProvider(t, kubernetes.Options{Pending: 20 * time.Second})
	for name, c := range map[string]struct {
		spec  fumehood.Spec
		class error
		text  string
	}{
		"image":       {fumehood.Spec{Image: "localhost:1/no/such:image"}, fumehood.ErrUnavailable, "ErrImagePull"},
		"image name":  {fumehood.Spec{Image: "NOT a reference"}, fumehood.ErrConfig, "InvalidImageName"},
		"folder":      {fumehood.Spec{Image: debian, Dir: "/etc/passwd"}, fumehood.ErrConfig, "not a directory"},
		"user":        {fumehood.Spec{Image: debian, User: "nobody-of-that-name"}, fumehood.ErrConfig, "no user of the name"},
		"no node":     {fumehood.Spec{Image: debian, Runtime: "absent"}, fumehood.ErrConfig, "absent"},
		"not a label": {fumehood.Spec{Name: "ends-in-hyphen-", Image: debian}, fumehood.ErrConfig, "ends-in-hyphen-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			sb, err := p.Start(t.Context(), c.spec)
			if err == nil {
				t.Fatal(sb.Close(t.Context()))
			}
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
			conformance.WantError(t, err, c.class)
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("%q is not in the error", c.text)
			}
		})
	}
}

// What the cluster has no room for waits for Pending, and then names the scheduler's reason.
func TestProvider_Start_unschedulable(t *testing.T) {
	t.Parallel()
	p := newProvider(t, kubernetes.Options{Pending: 3 * time.Second, RequestMemory: 1 << 50})
	_, err := p.Start(t.Context(), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Memory: 1 << 50}})
	conformance.WantError(t, err, fumehood.ErrLimit)
	if err == nil || !strings.Contains(err.Error(), "Insufficient memory") {
		t.Errorf("the reason is not in it: %v", err)
	}
}

// There is no network, not even with the node, and what a command writes is not in the container's log.
func TestSandbox_closed(t *testing.T) {
	t.Parallel()
	p := newProvider(t, kubernetes.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian})
	const script = `
import json, os, socket
out = {"devices": sorted(l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l)}
for address in ("10.201.96.1", "8.8.8.8", "` + "169.254.169.254" + `"):
    try:
        socket.create_connection((address, 443), 2); out[address] = "reached"
    except OSError as e:
        out[address] = os.strerror(e.errno) if e.errno else str(e)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
import fcntl, struct
try:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"eth0", 1)); out["up"] = "done"  # SIOCSIFFLAGS, IFF_UP
except OSError as e:
    out["up"] = os.strerror(e.errno)
out["token"] = os.path.exists("/var/run/secrets/kubernetes.io")
out["services"] = [n for n in os.environ if n.startswith("KUBERNETES")]
print(json.dumps(out))
`
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	const unreachable = `"Network is unreachable"`
	want := `{"devices": ["eth0", "lo"], "10.201.96.1": ` + unreachable + `, "8.8.8.8": ` + unreachable + `, "169.254.169.254": ` + unreachable +
		`, "up": "Operation not permitted", "token": false, "services": `
	if got := res.Stdout.Text(); !strings.HasPrefix(got, want) {
		t.Errorf("got %s%s", got, res.Stderr.Text())
	}
	if err := sb.WriteFile(t.Context(), "/tmp/f", []byte(strings.Repeat("secret", 1<<16)), fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := sb.ReadFile(t.Context(), "/tmp/f", fumehood.ReadOptions{}); err != nil || len(got) != 6<<16 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(node(t)), "pods", "default_"+sb.Info().Name+"_*", "default", "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || len(text) > 4<<10 {
		t.Errorf("the log has %d bytes, %v", len(text), err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A name that is in use is refused, whatever the second start has in common with the first.
func TestProvider_Start_nameTaken(t *testing.T) {
	t.Parallel()
	p := newProvider(t, kubernetes.Options{})
	spec := fumehood.Spec{Name: "name-taken", Image: busybox}
	sb := start(t, p, spec)
	for range 3 {
		_, err := p.Start(t.Context(), spec)
		conformance.WantError(t, err, fumehood.ErrConfig)
	}
	if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Pod that is deleted while it waits for a node ends the start at once.
func TestProvider_Start_deleted(t *testing.T) {
	t.Parallel()
	p := newProvider(t, kubernetes.Options{RequestMemory: 1 << 50})
	spec := fumehood.Spec{Name: "deleted-early", Image: busybox, Limits: fumehood.Limits{Memory: 1 << 50}}
	failed := make(chan error, 1)
	go func() {
		_, err := p.Start(t.Context(), spec)
		failed <- err
	}()
	conformance.Eventually(t, "the Pod waits", func() bool { return strings.Contains(pod(t, node(t), spec.Name), "Unschedulable") })
	if err := kubernetes.DeletePod(t.Context(), node(t), spec.Name); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		conformance.WantError(t, err, fumehood.ErrUnavailable)
	case <-time.After(30 * time.Second):
		t.Error("the start goes on")
	}
}
