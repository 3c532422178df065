//go:build linux && amd64

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

const (
	tortured       = 200
	torturedAtOnce = 8
)

// Many sandboxes run commands while the API server, the kubelet and containerd restart, and while some of them use up their
// memory or fork without end. Each command runs once, no output is lost, and nothing is left. This test is not parallel.
func TestTorture(t *testing.T) {
	config := namespaced(t, node(t))
	p := newProvider(t, kubernetes.Options{Kubeconfig: config, Logger: slog.New(slog.DiscardHandler)})
	var done atomic.Int64
	restarting := make(chan struct{})
	go func() {
		defer close(restarting)
		for i, program := range []string{"api", "kubelet", "containerd"} {
			for done.Load() < int64(tortured*(i+1)/4) {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-t.Context().Done():
					return
				}
			}
			out, err := exec.CommandContext(t.Context(), "../../scripts/kubernetes-node", "restart", filepath.Dir(node(t)), program).CombinedOutput()
			if err != nil {
				t.Errorf("restart %s: %v\n%s", program, err, out)
			}
		}
	}()
	numbers, failures := make(chan int), map[string]int{}
	var mu sync.Mutex
	var working sync.WaitGroup
	began := time.Now()
	for range torturedAtOnce {
		working.Go(func() {
			for n := range numbers {
				if err := torture(t.Context(), p, n); err != nil {
					mu.Lock()
					failures[err.Error()]++
					mu.Unlock()
				}
				done.Add(1)
			}
		})
	}
	for n := range tortured {
		numbers <- n
	}
	close(numbers)
	working.Wait()
	<-restarting
	t.Logf("%d sandboxes in %v", tortured, time.Since(began).Round(time.Second))
	for text, n := range failures {
		t.Errorf("%d times: %s", n, text)
	}
	if left, err := p.Cleanup(t.Context(), provider.CleanupOptions{DryRun: true}); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// torture starts a sandbox and runs commands in it. A start may fail while the cluster does not answer, with its reason, and is
// then done again.
func torture(ctx context.Context, p *kubernetes.Provider, n int) (err error) {
	var sb fumehood.Sandbox
	for tries := 1; ; tries++ {
		sb, err = p.Start(ctx, fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 128 << 20}})
		if err == nil {
			break
		}
		if passing := errors.Is(err, fumehood.ErrInfrastructure) || errors.Is(err, fumehood.ErrUnavailable); !passing || tries == 5 {
			return fmt.Errorf("start: %w", err)
		}
		<-time.After(time.Second)
	}
	defer func() {
		if cerr := sb.Close(ctx); cerr != nil {
			err = errors.Join(err, fmt.Errorf("close: %w", cerr))
		}
	}()
	for i := range 3 {
		res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"sh", "-c", fmt.Sprintf("echo %d >>/tmp/runs; sleep 0.3; seq 1000", i)}, Timeout: time.Minute})
		if err != nil || !res.Success() || strings.Count(res.Stdout.Text(), "\n") != 1000 {
			return fmt.Errorf("command: %v, %w", res, err)
		}
	}
	if runs, err := sb.ReadFile(ctx, "/tmp/runs", fumehood.ReadOptions{}); err != nil || string(runs) != "0\n1\n2\n" {
		return fmt.Errorf("the commands ran %q, %w", runs, err)
	}
	var res *fumehood.Result
	switch n % 20 {
	case 5:
		res, err = sb.Exec(ctx, fumehood.Cmd{Args: []string{"python3", "-c", "a = []\nwhile True: a.append(bytearray(1 << 20))"}, Timeout: time.Minute})
		if err != nil || res.Outcome != fumehood.OutOfMemory {
			return fmt.Errorf("out of memory: %v, %w", res, err)
		}
	case 15: // the node limits the processes of a Pod
		res, err = sb.Exec(ctx, fumehood.Cmd{Args: []string{"python3", "-c", "import os\nwhile True:\n  try:\n    os.fork()\n  except OSError: pass"}, Timeout: 2 * time.Second})
		if err != nil || res.Outcome != fumehood.TimedOut && res.Outcome != fumehood.OutOfMemory {
			return fmt.Errorf("fork bomb: %v, %w", res, err)
		}
	default:
		return nil
	}
	return nil
}

// A quota, an eviction for the storage that a sandbox used, and a Pod that somebody deleted: each has its class and the cluster's
// words.
func TestReasons_node(t *testing.T) {
	t.Parallel()
	config := namespaced(t, node(t))
	if err := kubernetes.SetQuota(t.Context(), config, 1); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, kubernetes.Options{Kubeconfig: config})
	sb := start(t, p, fumehood.Spec{Image: busybox, Limits: fumehood.Limits{Disk: 20 << 20}})
	began := time.Now()
	other, err := p.Start(t.Context(), fumehood.Spec{Image: busybox})
	t.Logf("the quota, after %v: %v", time.Since(began).Round(time.Millisecond), err)
	if err == nil {
		t.Error(other.Close(t.Context()))
	}
	conformance.WantError(t, err, fumehood.ErrLimit)
	if err == nil || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("the cluster's words are not in it: %v", err)
	}
	began = time.Now()
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "dd if=/dev/zero of=/big bs=1M count=60; sleep 300"}})
	t.Logf("the eviction, after %v: %v, %v", time.Since(began).Round(time.Millisecond), res, err)
	if err != nil || res.Outcome != fumehood.Lost || !res.CausedInside || !strings.Contains(res.Reason, "ephemeral") {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrBroken) {
		t.Errorf("a later command: %v", err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// An image of a registry that wants a password is pulled with a secret, and not without one.
func TestPullSecrets_node(t *testing.T) {
	t.Parallel()
	config := namespaced(t, node(t))
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	defer s.Close()
	ref := push(t, s.URL, remote.WithAuth(&authn.Basic{Username: "me", Password: "secret"}))
	sb, err := newProvider(t, kubernetes.Options{Kubeconfig: config}).Start(t.Context(), fumehood.Spec{Image: ref})
	if err == nil {
		t.Error(sb.Close(t.Context()))
	}
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "authorization") {
		t.Errorf("without a secret: %v", err)
	}
	if err := kubernetes.SetPullSecret(t.Context(), config, "registry", strings.TrimPrefix(s.URL, "http://"), "me", "secret"); err != nil {
		t.Fatal(err)
	}
	sb = start(t, newProvider(t, kubernetes.Options{Kubeconfig: config, PullSecrets: []string{"registry"}}), fumehood.Spec{Image: ref})
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// With a user namespace, root in the sandbox is another user on the node.
func TestUserNamespaces_node(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, kubernetes.Options{UserNamespaces: true}), fumehood.Spec{Image: busybox, User: "root"})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "id -u; cat /proc/self/uid_map"}})
	if err != nil || !res.Success() {
		t.Fatal(res, err)
	}
	if fields := strings.Fields(res.Stdout.Text()); len(fields) < 3 || fields[0] != "0" || fields[1] != "0" || fields[2] == "0" {
		t.Errorf("got %q", res.Stdout.Text())
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The requests to the API server for a sandbox's life, without those of the provider itself.
func TestRequests(t *testing.T) {
	proxied, requests := counted(t, node(t))
	p := newProvider(t, kubernetes.Options{Kubeconfig: proxied, Logger: slog.New(slog.DiscardHandler)})
	life := func() {
		sb := start(t, p, fumehood.Spec{Image: busybox})
		for range 3 {
			if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || !res.Success() {
				t.Fatal(res, err)
			}
		}
		if err := sb.WriteFile(t.Context(), "/tmp/x", []byte("x"), fumehood.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	life() // the first one also starts the watch, and looks for what earlier processes left
	before := len(requests())
	const lives = 10
	for range lives {
		life()
	}
	after := requests()[before:]
	slices.Sort(after)
	t.Logf("%.1f requests for each sandbox: %q", float64(len(after))/lives, after)
	if len(after) > 8*lives {
		t.Errorf("%d requests for %d sandboxes, the aim is 8 each", len(after), lives)
	}
}
