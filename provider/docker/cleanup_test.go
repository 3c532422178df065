package docker_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/tier"
)

// The daemon is asked for its time only if an object that may be removed has expired, and not for others.
func TestCleanup_othersExpired(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, socketOf(t))
	var calls atomic.Int64
	proxy.Decide(func(call string) faultproxy.Fault {
		if call == "GET /info" {
			calls.Add(1)
		}
		return faultproxy.None
	})
	p := newProvider(t, docker.Options{Host: proxy.Host})
	ctx := context.WithoutCancel(t.Context())
	over := start(t, p, fumehood.Spec{Image: busybox, Name: "others-expired", Keep: true, TTL: time.Hour}).Info().Name
	t.Cleanup(func() {
		p.OnlySandboxes(over)
		if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{over}}); err != nil {
			t.Error(err)
		}
	})
	p.SetClock(func() time.Time { return time.Now().Add(2 * time.Hour) })
	for name, asked := range map[string]bool{"another": false, over: true} {
		p.OnlySandboxes(name)
		before := calls.Load()
		if _, err := p.Cleanup(ctx, provider.CleanupOptions{DryRun: true}); err != nil {
			t.Fatal(err)
		}
		if is := calls.Load() > before; is != asked {
			t.Errorf("only %s: the daemon was asked: %v", name, is)
		}
	}
}

func TestCleanup_leaseClockJumps(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	p.OnlySandboxes("lease-holds", "lease-over", "lease-kept")
	far, err := docker.NewAs(t.Context(), docker.Options{NoReaper: true, NoSweep: true, Lease: time.Hour}, owner.ID{Host: "elsewhere", Boot: "b", PIDNS: "p", PID: 1, Start: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := far.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	start(t, far, fumehood.Spec{Image: busybox, Name: "lease-holds"})
	far.SetClock(func() time.Time { return time.Now().Add(-2 * time.Hour) })
	start(t, far, fumehood.Spec{Image: busybox, Name: "lease-over"})
	kept := start(t, p, fumehood.Spec{Image: busybox, Name: "lease-kept", Keep: true, TTL: time.Hour})
	defer func() {
		if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{kept.Info().Name}}); err != nil {
			t.Error(err)
		}
	}()
	years := 10 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name string
		jump time.Duration
		over int // remaining objects of the sandbox whose lease is over
	}{{"back", -years, 1}, {"ahead", years, 0}} {
		p.SetClock(func() time.Time { return time.Now().Add(c.jump) })
		plan, err := p.Cleanup(ctx, provider.CleanupOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range plan {
			if l.Kind == "folder" {
				continue // belongs to this process
			}
			if l.Sandbox == "lease-holds" && (l.Remove || l.Owner != "unknown") || l.Sandbox == "lease-kept" && l.Remove || l.Cache && l.Reason == "a cache of another version" {
				t.Errorf("%s: it would remove %+v", c.name, l)
			}
			if l.Sandbox == "lease-over" && l.Remove == (c.over == 1) {
				t.Errorf("%s: expired lease: %+v", c.name, l)
			}
		}
	}
	if _, err := p.Cleanup(ctx, provider.CleanupOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"lease-over": 0, "lease-holds": 1, "lease-kept": 1} {
		if left := objectsOf(t, name); len(left) != want {
			t.Errorf("%s: there is %v", name, left)
		}
	}
}

func TestSweep_firstStart(t *testing.T) {
	t.Parallel()
	tier.NeedDocker(t)
	kill := conformance.StartOwner(t, "command", t.TempDir(), "swept-dead", false)
	held := conformance.StartOwner(t, "command", t.TempDir(), "swept-held", false)
	kill()
	defer held()
	p, err := docker.New(t.Context(), docker.Options{}) // with the sweep enabled
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	p.OnlySandboxes("swept-dead", "swept-held")
	p.SetClock(func() time.Time { return time.Now().Add(time.Hour) }) // new objects are left to their owner's reaper
	start(t, p, fumehood.Spec{Image: busybox})
	conformance.Eventually(t, "it is swept", func() bool { return len(objectsOf(t, "swept-dead")) == 0 })
	if left := objectsOf(t, "swept-held"); len(left) != 1 {
		t.Errorf("objects of the living owner: %v", left)
	}
	held()
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Error(err)
	}
}

func TestOptions_NoReaper(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProvider(t, docker.Options{NoReaper: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	start(t, p, fumehood.Spec{Image: busybox})
	if !strings.Contains(log.String(), "no reaper is started") {
		t.Errorf("the log says %s", &log)
	}
}

// oneOf returns the sandbox's object of a kind.
func oneOf(t *testing.T, sandbox string, kind engine.Kind) engine.Object {
	t.Helper()
	for _, o := range objectsOf(t, sandbox) {
		if o.Kind == kind {
			return o
		}
	}
	t.Fatalf("%s has no %s", sandbox, kind)
	return engine.Object{}
}

const networkAndVolume = `
services:
  default: {image: fumehood-test/busybox, command: [sleep, infinity], networks: [shared], volumes: ["data:/data"]}
networks: {shared: {}}
volumes: {data: {}}
`

func TestClose_foreignOnNetwork(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	gone := start(t, p, fumehood.Spec{Compose: project(t, networkAndVolume)})
	stays := start(t, p, fumehood.Spec{Compose: project(t, networkAndVolume)})
	network := oneOf(t, gone.Info().Name, engine.Network)
	newRawDaemon(t).ask("POST", "/networks/"+network.ID+"/connect", map[string]string{"Container": stays.ServiceInfo().Container}, nil)
	if err := gone.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := objectsOf(t, gone.Info().Name); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if got := sh(t, stays, "echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

func TestClose_daemonRefuses(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	e := engineOf(t)
	sb := start(t, p, fumehood.Spec{Compose: project(t, networkAndVolume)})
	volume := oneOf(t, sb.Info().Name, engine.Volume)
	foreign := engine.Object{Kind: engine.Container, Name: "foreign"}
	newRawDaemon(t).ask("POST", "/containers/create", map[string]any{
		"Image": busybox, "HostConfig": map[string]any{"Binds": []string{volume.Name + ":/data"}},
	}, &foreign)
	err := sb.Close(t.Context())
	if err == nil || !strings.Contains(err.Error(), "remove volume "+volume.Name) {
		t.Errorf("got %v", err)
	}
	left := objectsOf(t, sb.Info().Name)
	if len(left) != 1 || left[0].Name != volume.Name {
		t.Errorf("left: %v", left)
	}
	if err := e.Remove(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := objectsOf(t, sb.Info().Name); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestClose_anonymousVolumes(t *testing.T) {
	t.Parallel()
	const name = "anonymous-dead"
	d := newRawDaemon(t)
	d.importImage("fumehood-test/anonymous", "1", tree(t, "data/", ""), "VOLUME /data")
	ended, err := owner.Self()
	if err != nil {
		t.Fatal(err)
	}
	ended.Start-- // its PID now belongs to another process
	dead, err := docker.NewAs(t.Context(), docker.Options{NoReaper: true, NoSweep: true}, ended)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := dead.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	sb := start(t, dead, fumehood.Spec{Image: "fumehood-test/anonymous:1", Name: name})
	var made struct {
		Mounts []struct{ Name, Destination string }
	}
	d.ask("GET", "/containers/"+sb.ServiceInfo().Container+"/json", nil, &made)
	volume := ""
	for _, m := range made.Mounts {
		if m.Destination == "/data" {
			volume = m.Name
		}
	}
	e := engineOf(t)
	there := func() bool {
		is, err := e.HasVolume(t.Context(), volume)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	if volume == "" || !there() {
		t.Fatalf("the container has no volume at /data: %+v", made)
	}
	p := newProvider(t, docker.Options{})
	p.OnlySandboxes(name)
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{}); err != nil {
		t.Error(err)
	}
	if left := objectsOf(t, name); len(left) != 0 || there() {
		t.Errorf("left: %v, and the volume: %v", left, there())
	}
}
