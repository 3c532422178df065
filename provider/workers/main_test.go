//go:build linux && (amd64 || arm64)

package workers_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/provider/workers"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// The test images of `make images`.
const (
	debian  = "fumehood-test/python"
	busybox = "fumehood-test/busybox"
)

var shared string // a folder with the program and the images of all workers

func TestMain(m *testing.M) {
	native.RunReaper()
	ctx := context.Background()
	if conformance.Owner(ctx, os.Stdout, fumehood.Spec{Image: busybox}, func(dir string, _ bool) (fumehood.Provider, error) {
		return workers.New(workers.Options{URLs: []string{"unix:" + filepath.Join(dir, "socket")}})
	}) {
		os.Exit(1)
	}
	var err error
	if shared, err = os.MkdirTemp("", "workers-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(shared); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// prepared builds the program, and unpacks the images.
var prepared = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-o", filepath.Join(shared, "bin", "fumehood"), "github.com/fumehood/fumehood/cmd/fumehood").CombinedOutput() //nolint:noctx // of all tests
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	ctx := context.Background()
	p, err := native.New(ctx, native.Options{StateDir: filepath.Join(shared, "state"), CacheDir: filepath.Join(shared, "fumehood", "native")})
	if err != nil {
		return err
	}
	for _, image := range []string{busybox, debian} {
		if _, err := p.LoadImages(ctx, filepath.Join(testimages.Dir(), filepath.Base(image)+".tar")); err != nil {
			return err
		}
	}
	return p.Close(ctx)
})

// server is a process of `fumehood serve --provider native`.
type server struct {
	url, state string
	dir        string // with its socket
	cache      string // of images; empty means the shared one
	cmd        *exec.Cmd
	ended      chan struct{}
}

// serve starts a server on a socket. It ends with t, and nothing of its sandboxes may be left then.
func serve(t *testing.T, flags ...string) *server {
	t.Helper()
	s := &server{dir: shortDir(t)}
	s.url = "unix:" + filepath.Join(s.dir, "socket")
	s.start(t, append([]string{"--socket", filepath.Join(s.dir, "socket")}, flags...)...)
	await(t, "unix", filepath.Join(s.dir, "socket"), s)
	return s
}

// serveEmpty is serve without images.
func serveEmpty(t *testing.T) *server {
	t.Helper()
	s := &server{dir: shortDir(t), cache: t.TempDir()}
	s.url = "unix:" + filepath.Join(s.dir, "socket")
	s.start(t, "--socket", filepath.Join(s.dir, "socket"))
	await(t, "unix", filepath.Join(s.dir, "socket"), s)
	return s
}

func shortDir(t *testing.T) string { // for sockets
	t.Helper()
	dir, err := os.MkdirTemp("", "w-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (s *server) start(t *testing.T, flags ...string) {
	t.Helper()
	if err := native.CheckSupport(); err != nil {
		tier.Missing(t, tier.CI, err)
	}
	testimages.Archive(t, debian)
	if err := prepared(); err != nil {
		t.Fatal(err)
	}
	s.state, s.ended = filepath.Join(s.dir, "fumehood", "native"), make(chan struct{})
	s.cmd = exec.Command(filepath.Join(shared, "bin", "fumehood"), append([]string{"serve", "--log-level", "warn", "--provider", "native"}, flags...)...) //nolint:noctx // the cleanup ends it
	s.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+s.dir, "XDG_CACHE_HOME="+cmp.Or(s.cache, shared))
	var log bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // a test may have killed it
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(unix.SIGTERM)
		<-s.ended
		if t.Failed() {
			t.Logf("%s printed: %s", s.url, tail(log.Bytes()))
		}
		if left, err := os.ReadDir(s.state); err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

func tail(b []byte) []byte { return b[max(len(b)-4000, 0):] }

// await waits until a server listens.
func await(t *testing.T, network, address string, s *server) {
	t.Helper()
	conformance.Eventually(t, "the server listens", func() bool {
		select {
		case <-s.ended:
			t.Fatal("the server has ended")
		default:
		}
		c, err := (&net.Dialer{}).DialContext(t.Context(), network, address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// newProvider returns a provider that is closed when t ends.
func newProvider(t *testing.T, urls ...string) *workers.Provider {
	t.Helper()
	p, err := workers.New(workers.Options{URLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func start(t *testing.T, p fumehood.Provider, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}
