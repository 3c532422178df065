//go:build linux && (amd64 || arm64)

package native_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

func TestProvider_Open_ownerKilled_rootless(t *testing.T) {
	t.Parallel()
	withIDs(t, openOwnerKilled)
}

func TestSandbox_Stop_rootless(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All)
	withIDs(t, stopBombs, debian, static)
}

// TestProvider_killed_rootless kills owners without root.
func TestProvider_killed_rootless(t *testing.T) {
	t.Parallel()
	needNetwork(t)
	withIDs(t, func(t *testing.T) {
		killOwners(t, native.Options{}, tier.Pick(t, 8, 16, 160), []string{"disk", "frozen"})
	})
}

// Without control groups, a kept sandbox is stopped and removed by its first process and its PID namespace.
func TestProvider_Start_keptAlone(t *testing.T) {
	t.Parallel()
	asUser(t, keptAlone)
}

func keptAlone(t *testing.T) {
	d := newStateDir(t)
	p := newProvider(t, native.Options{StateDir: string(d), CacheDir: filepath.Join(t.TempDir(), "cache")})
	sb := keep(t, p, fumehood.Spec{Image: busybox})
	sleeper, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000"}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened, err := p.Open(t.Context(), sb.Info().Name)
	if err != nil {
		t.Fatal(err)
	}
	commands := func() string { return run(t, opened, "grep -lx sleep /proc/[0-9]*/comm 2>/dev/null | wc -l") }
	conformance.Eventually(t, "the commands run", func() bool { return commands() == "2" })
	if err := opened.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if opened, err = p.Open(t.Context(), sb.Info().Name); err != nil {
		t.Fatal(err)
	}
	if got := commands(); got != "0" {
		t.Errorf("%s commands run after the stop", got)
	}
	_, _ = sleeper.Wait(t.Context()) // its connection is closed
}

// A cleanup finds the control groups of a killed owner that was in other ones.
func TestProvider_Cleanup_otherGroups(t *testing.T) {
	t.Parallel()
	asUserWith(t, rights{groups: ownedGroups}, cleanOtherGroups)
}

func cleanOtherGroups(t *testing.T) {
	dir := t.TempDir()
	p := newProvider(t, native.Options{StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache")})
	enter := ""
	var made []string
	for _, own := range currentGroups(t) {
		session := filepath.Join(own, "session")
		if err := os.Mkdir(session, 0o755); err != nil { //nolint:gosec // as all control groups
			t.Fatal(err)
		}
		if cgroups.IsCgroup2UnifiedMode() {
			markDelegated(t, session)
		}
		enter += "echo $$ > " + session + "/cgroup.procs; "
		made = append(made, session)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", enter+`exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), phaseVar+"=commands", dirVar+"="+dir, prefixVar+"=other", aloneVar+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "now" {
		t.Fatalf("the owner says %q: %v", lines.Text(), lines.Err())
	}
	_ = cmd.Process.Kill() // and wait
	_ = cmd.Wait()
	groups := func() (all []string) {
		for _, session := range made {
			found, err := filepath.Glob(session + "/fumehood/other-*")
			if err != nil {
				t.Error(err)
			}
			all = append(all, found...)
		}
		return all
	}
	if len(groups()) == 0 {
		t.Error("the owner has made no control groups")
	}
	if _, err := p.Cleanup(context.WithoutCancel(t.Context()), provider.CleanupOptions{}); err != nil {
		t.Error(err)
	}
	if left := groups(); len(left) > 0 {
		t.Errorf("left: %s", strings.Join(left, " "))
	}
	for _, session := range made {
		if err := errors.Join(os.Remove(session+"/fumehood"), os.Remove(session)); err != nil {
			t.Error(err)
		}
	}
}
