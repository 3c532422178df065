package lifetest

import (
	"errors"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// Run runs commands in a sandbox and closes it.
func Run(t *testing.T, p fumehood.Provider, r *Record, spec fumehood.Spec) {
	t.Helper()
	sb := startSandbox(t, p, r, spec)
	r.Step("use")
	if err := sb.WriteFile(t.Context(), "file", []byte("content\n"), fumehood.WriteOptions{}); err != nil {
		t.Error(err)
	}
	exec(t, sb)
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"no-such-program"}}); !errors.Is(err, fumehood.ErrProgramNotFound) {
		t.Errorf("a missing program: %v", err)
	}
	if got, err := sb.ReadFile(t.Context(), "file", fumehood.ReadOptions{}); err != nil || string(got) != "content\n" {
		t.Errorf("read %q, %v", got, err)
	}
	r.Step("close")
	closeAll(t, p, sb, sb)
}

// Project runs commands in two services of a project: the default one and db.
func Project(t *testing.T, p fumehood.Provider, r *Record, spec fumehood.Spec) {
	t.Helper()
	sb := startSandbox(t, p, r, spec)
	r.Step("use")
	exec(t, sb)
	db, err := sb.Lookup("db")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db)
	r.Step("close")
	closeAll(t, p, sb)
}

// FailStart fails to start a sandbox.
func FailStart(t *testing.T, p fumehood.Provider, r *Record, spec fumehood.Spec) {
	t.Helper()
	r.Step("start")
	spec.Journal = r.Journal()
	if _, err := p.Start(t.Context(), spec); err == nil {
		t.Error("it has started")
	}
	r.Step("close")
	closeAll(t, p)
}

// CloseKept keeps a sandbox. If the provider is a provider.Opener, it opens, renews and stops the sandbox too. Finally it
// removes it.
func CloseKept(t *testing.T, p fumehood.Provider, r *Record, spec fumehood.Spec) {
	t.Helper()
	spec.Keep, spec.TTL = true, time.Hour
	sb := startSandbox(t, p, r, spec)
	r.Step("use")
	exec(t, sb)
	r.Step("close")
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if o, ok := p.(provider.Opener); ok {
		reopen(t, o, r, spec.Name)
	}
	r.BeginShared("remove")
	left, err := p.(provider.Cleaner).Cleanup(t.Context(), provider.CleanupOptions{Names: []string{spec.Name}})
	if err != nil {
		t.Error(err)
	}
	removed := false
	for _, l := range left {
		removed = removed || l.Sandbox == spec.Name && l.Removed
	}
	if !removed {
		t.Errorf("it is not removed: %+v", left)
	}
	closeAll(t, p)
}

// reopen lists, opens, renews and stops a kept sandbox.
func reopen(t *testing.T, o provider.Opener, r *Record, name string) {
	t.Helper()
	r.BeginShared("list")
	if _, err := o.Kept(t.Context()); err != nil {
		t.Error(err)
	}
	r.Step("open")
	sb, err := o.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	sb.Record(r.Journal())
	exec(t, sb)
	r.BeginShared("renew")
	if _, err := o.Renew(t.Context(), name, 2*time.Hour); err != nil {
		t.Error(err)
	}
	r.Step("stop")
	if err := sb.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	r.Step("close again")
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func startSandbox(t *testing.T, p fumehood.Provider, r *Record, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	r.Step("start")
	spec.Journal = r.Journal()
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// exec runs a command that exits with 3.
func exec(t *testing.T, s fumehood.Service) {
	t.Helper()
	res, err := s.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo out; exit 3"}})
	if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 3 || res.Stdout.Text() != "out\n" {
		t.Errorf("got %+v, %v", res, err)
	}
}

// closeAll closes sandboxes and then their provider.
func closeAll(t *testing.T, p fumehood.Provider, sandboxes ...fumehood.Sandbox) {
	t.Helper()
	for _, sb := range sandboxes {
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
