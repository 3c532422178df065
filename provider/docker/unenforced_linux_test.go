package docker_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// A rootless daemon without control groups of version 2 drops every limit. It reports that only in the response to a
// creation.
func TestLimits_unenforced(t *testing.T) {
	tier.Need(t, tier.All)
	t.Parallel()
	d := dockertest.StartRootlessDaemon(t, debian)
	opts := docker.Options{Host: d.Host, NoSockets: true, StateDir: t.TempDir()}
	p := newProvider(t, opts)
	if m, err := p.Machine(t.Context()); err != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	for name, spec := range map[string]fumehood.Spec{
		"default limits": {Image: debian},
		"a project":      {Compose: project(t, "services: {default: {image: fumehood-test/python, command: sleep infinity}}")},
		"CPUs":           {Image: debian, Limits: fumehood.Limits{CPUs: 0.5}},
	} {
		_, err := p.Start(t.Context(), spec)
		var e *fumehood.Error
		if !errors.Is(err, fumehood.ErrUnsupported) || !errors.As(err, &e) || !strings.Contains(err.Error(), "cannot enforce limits: memory, swap, pids") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	var failed []string
	if docker.Diagnose(t.Context(), opts, func(c docker.Check) {
		if c.Status == docker.Fail {
			failed = append(failed, c.Name+": "+c.Detail)
		}
	}) || !slices.ContainsFunc(failed, func(f string) bool { return strings.Contains(f, "cannot enforce limits") }) {
		t.Errorf("the diagnosis: %q", failed)
	}

	var log bytes.Buffer
	opts.AllowUnenforcedLimits, opts.Logger = true, slog.New(slog.NewTextHandler(&log, nil))
	p = newProvider(t, opts)
	sb := start(t, p, fumehood.Spec{Image: debian, User: "tester", Limits: fumehood.Limits{Memory: 64 << 20, PIDs: 60, CPUs: 0.5}})
	want := []string{"memory", "swap", "pids", "cpus"}
	if got := sb.Info().Unenforced; !slices.Equal(got, want) {
		t.Errorf("its info is %q, want %q", got, want)
	}
	if !strings.Contains(log.String(), `limits="memory swap pids cpus"`) {
		t.Errorf("the log says %s", log.String())
	}
	// The memory limit applies to each process.
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", "bytearray(300 << 20)"}})
	if err != nil || res.Outcome != fumehood.Exited || !strings.Contains(res.Stderr.Text(), "MemoryError") {
		t.Errorf("300 MiB: %+v, %v", res, err)
	}
	kept := keep(t, p, fumehood.Spec{Image: debian})
	if err := kept.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened, err := p.Open(t.Context(), kept.Info().Name)
	if err != nil {
		t.Fatal(err)
	}
	if got := opened.Info().Unenforced; !slices.Equal(got, want) {
		t.Errorf("the info of an opened sandbox is %q, want %q", got, want)
	}
	failed = nil
	if docker.Diagnose(t.Context(), opts, func(c docker.Check) {
		if c.Status == docker.Fail {
			failed = append(failed, c.Name)
		}
	}) || !slices.Equal(failed, []string{"cpu limit", "process limit", "memory limit"}) {
		t.Errorf("the diagnosis where that is allowed: %q", failed)
	}
}

// TestDiagnose_limits checks the diagnosis where limits are enforced.
func TestDiagnose_limits(t *testing.T) {
	t.Parallel()
	tier.NeedDocker(t)
	got := map[string]docker.Status{}
	docker.Diagnose(t.Context(), docker.Options{NoSweep: true, StateDir: t.TempDir()}, func(c docker.Check) { got[c.Name] = c.Status })
	for _, limit := range []string{"cpu limit", "process limit", "memory limit"} {
		if got[limit] != docker.OK {
			t.Errorf("%s is %q", limit, got[limit])
		}
	}
}
