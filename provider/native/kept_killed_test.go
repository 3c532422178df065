//go:build linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// openOwnerKilled is a promise of the suite, for users without root and sandboxes without control groups.
func openOwnerKilled(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	p := newProvider(t, native.Options{StateDir: state, CacheDir: filepath.Join(dir, "cache")})
	conformance.KeptOutlives(t, &conformance.ProviderCase{Subject: conformance.Subject{Provider: p, Dir: state}})
}

// edit changes the file of a kept sandbox.
func edit(t *testing.T, d stateDir, name string, change func(text string) string) {
	t.Helper()
	file := filepath.Join(string(d), name, "sandbox.json")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setFirst changes the first process in the file of a kept sandbox.
func setFirst(t *testing.T, d stateDir, name string, change func(id *owner.ID)) {
	t.Helper()
	edit(t, d, name, func(text string) string {
		_, rest, _ := strings.Cut(text, `"first":"`)
		old, _, _ := strings.Cut(rest, `"`)
		id, err := owner.Parse(old)
		if err != nil {
			t.Fatal(err)
		}
		change(&id)
		return strings.Replace(text, old, id.String(), 1)
	})
}

func TestProvider_Open_damaged(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	other := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	var good string
	edit(t, d, name, func(text string) string {
		good = text
		return text
	})
	replaced := func(old, with string) func(string) string {
		return func(text string) string {
			if !strings.Contains(text, old) {
				t.Errorf("there is no %s", old)
			}
			return strings.Replace(text, old, with, 1)
		}
	}
	for title, change := range map[string]func(string) string{
		"empty":          func(string) string { return "" },
		"cut":            func(text string) string { return text[:len(text)/2] },
		"no object":      func(string) string { return "[]" },
		"large":          func(string) string { return strings.Repeat(" ", 17<<20) },
		"other sandbox":  replaced(`"fumehood.sandbox":"`+name, `"fumehood.sandbox":"`+other),
		"other protocol": replaced(`"protocol":`, `"protocol":1`),
		"no services":    replaced(`"services":[{"info"`, `"x":[{"info"`),
		"more services":  replaced(`"services":[{"info"`, `"services":[{"info":{"name":"default"},"first":"v1 a b c 1 2"},{"info"`),
		"service's name": replaced(`"name":"default"`, `"name":"../x"`),
		"long key":       replaced(`"fumehood.key":"`, `"fumehood.key":"AAAA`),
		"relative guest": replaced(`"guest":"/`, `"guest":"`),
		"process":        replaced(`"first":"v1`, `"first":"v2`),
	} {
		t.Run(title, func(t *testing.T) {
			edit(t, d, name, func(string) string { return change(good) })
			_, err := p.Open(t.Context(), name)
			conformance.WantError(t, err, fumehood.ErrInfrastructure)
			if file := filepath.Join(string(d), name, "sandbox.json"); !strings.Contains(fmt.Sprint(err), file) {
				t.Errorf("the error does not name %s: %v", file, err)
			}
			if state := stateOf(t, p, name); state != "damaged" {
				t.Errorf("listed as %q", state)
			}
		})
	}
	if state := stateOf(t, p, other); state != "running" {
		t.Errorf("the other one is listed as %q", state)
	}
	if err := os.Remove(filepath.Join(string(d), name, "sandbox.json")); err != nil {
		t.Fatal(err)
	}
	_, err := p.Open(t.Context(), name)
	conformance.WantError(t, err, fumehood.ErrInfrastructure)
}

// A first process whose number another process has by now is not touched.
func TestProvider_Open_reusedPID(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := start(t, p, fumehood.Spec{Image: busybox, Keep: true}).Info().Name
	<-time.After(20 * time.Millisecond) // Linux tells the start of a process to 10 ms
	innocent := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	setFirst(t, d, name, func(id *owner.ID) { id.PID = innocent.Process.Pid })
	_, err := p.Open(t.Context(), name)
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	if state := stateOf(t, p, name); state != "ended" {
		t.Errorf("listed as %q", state)
	}
	removeKept(t.Context(), t, p, name)
	if err := innocent.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the other process: %v", err)
	}
	if err := innocent.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := innocent.Wait(); err == nil {
		t.Error("the other process ended by itself")
	}
}

// A sandbox that cannot be seen from here is neither used nor shown as ended.
func TestProvider_Open_otherNamespace(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	setFirst(t, d, name, func(id *owner.ID) { id.PIDNS = "pid:[1]" })
	_, err := p.Open(t.Context(), name)
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	if state := stateOf(t, p, name); state != "unknown" {
		t.Errorf("listed as %q", state)
	}
}

// A kept sandbox that was killed is shown as ended. Its name is free once it is removed.
func TestProvider_Open_killed(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	name := keep(t, p, fumehood.Spec{Image: busybox}).Info().Name
	opened := d.open(t, name)
	answers(t, opened)
	var st struct {
		Services []struct{ First string }
	}
	edit(t, d, name, func(text string) string {
		if err := json.Unmarshal([]byte(text), &st); err != nil {
			t.Fatal(err)
		}
		return text
	})
	id, err := owner.Parse(st.Services[0].First)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := unix.Kill(id.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the first process has ended", func() bool { // which ends all others before
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.PID))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
	for _, user := range []string{"0", "1"} {
		_, err = opened.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
		conformance.WantError(t, err, fumehood.ErrUnavailable)
		if !strings.Contains(fmt.Sprint(err), "has ended") {
			t.Errorf("got %v", err)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the errors took %v", took)
	}
	_, err = d.another(t).Open(t.Context(), name)
	conformance.WantError(t, err, fumehood.ErrUnavailable)
	if state := stateOf(t, p, name); state != "ended" {
		t.Errorf("listed as %q", state)
	}
	if all, err := p.Cleanup(t.Context(), provider.CleanupOptions{DryRun: true}); err != nil || len(all) == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	_, err = p.Start(t.Context(), fumehood.Spec{Image: busybox, Name: name})
	conformance.WantError(t, err, fumehood.ErrConfig)
	removeKept(t.Context(), t, p, name)
	keepAgain := start(t, p, fumehood.Spec{Image: busybox, Name: name, Keep: true})
	answers(t, keepAgain)
}
