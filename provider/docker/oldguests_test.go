package docker

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/test/tier"
)

func TestOldGuests(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	const volume, current = "fumehood-guest-0123456789ab-amd64-abcdefgh", "fumehood-guest-ba9876543210-amd64-abcdefgh"
	object := func(kind engine.Kind, name string, age time.Duration) engine.Object {
		return engine.Object{Kind: kind, Name: name, Labels: map[string]string{
			owner.LabelCache: owner.GuestCache, owner.LabelMade: now.Add(-age).Format(time.RFC3339),
		}}
	}
	with := func(o engine.Object, label, value string) engine.Object {
		o.Labels[label] = value
		return o
	}
	for name, c := range map[string]struct {
		object     engine.Object
		old, spare bool
	}{
		"of_yesterday":         {object(engine.Volume, volume, oldAfter), true, false},
		"younger":              {object(engine.Volume, volume, oldAfter-time.Second), false, false},
		"age_not_known":        {with(object(engine.Volume, volume, 0), owner.LabelMade, "yesterday"), false, false},
		"current":              {object(engine.Volume, current, 48*time.Hour), false, false},
		"another_cache":        {with(object(engine.Volume, volume, 48*time.Hour), owner.LabelCache, "test-image"), false, false},
		"another_name":         {object(engine.Volume, "precious", 48*time.Hour), false, false},
		"container":            {object(engine.Container, volume, 48*time.Hour), false, false},
		"image_of_one_filling": {object(engine.ImageKind, "sha256:1", 0), false, true},
		"a_later_one":          {object(engine.Volume, "fumehood-guest-ba9876543210-arm64-b", 10*time.Minute), false, true},
		"at_the_same_time":     {object(engine.Volume, "fumehood-guest-ba9876543210-arm64-z", 20*time.Minute), false, true},
		"another_architecture": {object(engine.Volume, "fumehood-guest-ba9876543210-riscv64-b", 0), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []engine.Object{c.object, object(engine.Volume, "fumehood-guest-ba9876543210-arm64-c", 20*time.Minute)}
			if got := oldFrom(c.object, []string{"ba9876543210"}); (!got.IsZero() && !got.After(now)) != c.old {
				t.Errorf("old from %v", got)
			}
			s := &sweeper{isBad: func(string) bool { return false }}
			if got := s.marks(objects, nil); got[0].Unfinished != c.spare || got[1].Unfinished {
				t.Errorf("unfinished: %v, %v", got[0].Unfinished, got[1].Unfinished)
			}
		})
	}
}

// version connects a provider that delivers a guest of another version: the same program with bytes appended. It cleans
// up guests of versions whose names begin with the same six characters, the group.
func version(t *testing.T, group string) *Provider {
	t.Helper()
	tier.NeedDocker(t)
	p, err := New(t.Context(), Options{NoSweep: true})
	if err != nil {
		tier.Missing(t, tier.Quick, err)
	}
	suffix := group + newGroup()
	p.among = guestsWith(group)
	p.guestFor = func(ctx context.Context, arch string, log *slog.Logger) (guestbin.Binary, error) {
		guest, err := guestbin.For(ctx, arch, log)
		if err != nil {
			return guest, err
		}
		return appended(guest, suffix, suffix)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := p.life.Open.Close(ctx); err != nil {
			t.Error(err)
		}
		for _, o := range guestsOf(ctx, t, p, volumePrefix+suffix) {
			if err := p.engine.Remove(ctx, o); err != nil {
				t.Error(err)
			}
		}
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newGroup() string { return strings.ToLower(rand.Text()[:6]) }

func TestGuest_madeConcurrently(t *testing.T) {
	t.Parallel()
	group := newGroup()
	first := version(t, group)
	var all sync.WaitGroup
	for range tier.Pick(t, 4, 4, 8) {
		p := version(t, group)
		p.guestFor = first.guestFor
		all.Go(func() {
			if _, err := p.Start(t.Context(), fumehood.Spec{Image: "fumehood-test/busybox"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// guestsOf lists the guest volumes with a name prefix.
func guestsOf(ctx context.Context, t *testing.T, p *Provider, prefix string) []engine.Object {
	t.Helper()
	all, err := p.engine.Objects(ctx, owner.LabelCache+"="+owner.GuestCache, engine.Volume)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(o engine.Object) bool { return !strings.HasPrefix(guestVolume(o), prefix) })
}

func TestOldGuests_removedByNew(t *testing.T) {
	t.Parallel()
	group := newGroup()
	unused, used, young := oldVersion(t, group), oldVersion(t, group), version(t, group)
	closed(t, worksWith(t, unused))
	worksWith(t, used)
	closed(t, worksWith(t, young)) // makes a guest, and therefore looks for old ones
	hasGuests(t, unused, "old and not in use", 0)
	hasGuests(t, used, "old and in use", 1)
}

func TestOldGuests_badVolume(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"ended": true, "living": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := newGroup()
			maker, next := version(t, group), version(t, group)
			if ended {
				maker.self.Start-- // its PID now belongs to another process
			}
			maker.guestFor = func(ctx context.Context, arch string, log *slog.Logger) (guestbin.Binary, error) {
				guest, err := next.guestFor(ctx, arch, log)
				if err != nil {
					return guest, err
				}
				return appended(guest, "bad", guest.Version)
			}
			bad, err := maker.ensureGuest(t.Context(), archOf(t, next))
			if err != nil {
				t.Fatal(err)
			}
			worksWith(t, next)
			if left := guestsOf(t.Context(), t, next, bad.name); (len(left) == 0) != ended {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestOldGuests_cleanup(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	group := newGroup()
	used, young := oldVersion(t, group), version(t, group)
	running := worksWith(t, used)
	closed(t, worksWith(t, young))

	cleaner := version(t, group)
	plan, err := cleaner.Cleanup(ctx, provider.CleanupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hasGuests(t, used, "old and in use, at the clean-up", 1)
	for _, l := range plan {
		if l.Name == used.volumes[archOf(t, used)].name && (l.Removed || l.Remove || l.Reason != "a cache in use") {
			t.Errorf("volume in use: %+v", l)
		}
	}
	closed(t, running)
	if _, err := cleaner.Cleanup(ctx, provider.CleanupOptions{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	hasGuests(t, used, "old, at a dry run", 1)
	if _, err := cleaner.Cleanup(ctx, provider.CleanupOptions{}); err != nil {
		t.Fatal(err)
	}
	hasGuests(t, used, "old, after the clean-up", 0)
	hasGuests(t, young, "young, after the clean-up", 1)

	// The version that has lost its guest makes it again.
	closed(t, worksWith(t, used))
	hasGuests(t, used, "made again", 1)
}

// oldVersion returns a provider whose guest was made long ago.
func oldVersion(t *testing.T, group string) *Provider {
	t.Helper()
	p := version(t, group)
	p.SetClock(func() time.Time { return time.Now().Add(-2 * oldAfter) })
	return p
}

// worksWith starts a sandbox and runs a command in it.
func worksWith(t *testing.T, p *Provider) fumehood.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), fumehood.Spec{Image: "fumehood-test/busybox"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"echo", "works"}})
	if err != nil || res.Stdout.Text() != "works\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	return sb
}

func closed(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// hasGuests checks the number of volumes and images of a version's guest.
func hasGuests(t *testing.T, p *Provider, name string, want int) {
	t.Helper()
	guest, err := p.guestFor(t.Context(), archOf(t, p), p.opts.Logger)
	if err != nil {
		t.Fatal(err)
	}
	if got := guestsOf(t.Context(), t, p, volumePrefix+guest.Version); len(got) != want {
		t.Errorf("%s: %d objects of the version, want %d: %+v", name, len(got), want, got)
	}
}
