//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// insideDriver is a driver that holds on to the sandbox that it has planned last.
type insideDriver struct {
	driver
	planned *sandbox
}

// Plan plans a sandbox.
func (d *insideDriver) Plan(ctx context.Context, spec fumehood.Spec) (box.Body, error) {
	body, err := d.driver.Plan(ctx, spec)
	d.planned, _ = body.(*sandbox)
	return body, err
}

// startInside starts a sandbox, for tests of what its provider has. It returns the sandbox's backend too.
func startInside(t *testing.T, image string) (*Provider, fumehood.Sandbox, *sandbox) {
	t.Helper()
	p := newInside(t, filepath.Join(t.TempDir(), "state"), image)
	d := &insideDriver{driver: driver{p}}
	p.life.Driver = d
	sb, err := p.Start(t.Context(), fumehood.Spec{Image: image})
	if err != nil {
		t.Fatal(err)
	}
	return p, sb, d.planned
}

// newInside returns a provider with an image, until the test ends.
func newInside(t *testing.T, stateDir, image string) *Provider {
	t.Helper()
	if err := CheckSupport(); err != nil {
		tier.Missing(t, tier.CI, err)
	}
	p, err := New(t.Context(), Options{StateDir: stateDir})
	if err != nil {
		t.Fatal(err)
	}
	testimages.Load(t, p, image)
	ctx := t.Context()
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A process that enters a sandbox has all rights. It must not start another program than itself there.
func TestSandbox_join_otherProgram(t *testing.T) {
	t.Parallel()
	p, sb, inside := startInside(t, "fumehood-test/busybox")
	if _, err := sb.As("1").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	program, err := p.guest()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "guest")
	if err := writeProgram(other, content, 0o711); err != nil {
		t.Fatal(err)
	}
	inside.guest = other
	if _, err := sb.As("2").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err == nil {
		t.Error("it started a program that is not its own")
	}
}

// What a process that enters a sandbox cannot do is in its error.
func TestLaunch_enterUser(t *testing.T) {
	t.Parallel()
	program, err := install(context.WithoutCancel(t.Context()), filepath.Join(t.TempDir(), "guest"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	self := os.NewFile(uintptr(fd), "this process, whose user namespace is no other one") //nolint:gosec // not negative
	defer self.Close()
	p, err := launch(program, cgroup{}, capabilitySet(), &unix.SysProcAttr{}, "enter-user", nil, self)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.endsWithin(endWithin) || p.status.ExitStatus() != 1 || !strings.Contains(p.Complaint(), "setns: invalid argument") {
		t.Errorf("%v: %q", p.how(), p.Complaint())
	}
}

// A descriptor that comes with an incomplete message is closed. TestMain is the guest, which sends back what it got.
func TestLaunchShared_incomplete(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	_, err = launchShared(t.Context(), self, cgroup{}, capabilitySet(), &process{pidfd: writer})
	if err := errors.Join(writer.Close(), reader.SetDeadline(time.Now().Add(10*time.Second))); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the descriptor is open: %v", err)
	}
}
