package docker

import (
	"context"
	"crypto/rand"
	"io"
	"log"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guestbin"
	"github.com/fumehood/fumehood/internal/tier"
)

func TestGuestsOfOtherVersionsGrowOldInADay(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	const volume = "fumehood-guest-0123456789ab-amd64-abcdefgh"
	of := func(o engine.Object, volume string, age time.Duration) engine.Object {
		o.Created = now.Add(-age)
		o.Labels = map[string]string{engine.LabelCache: "guest"}
		if o.Kind == engine.Volume {
			o.Name = volume
		} else {
			o.Labels[engine.LabelGuestVolume] = volume
		}
		return o
	}
	vol, image := engine.Object{Kind: engine.Volume}, engine.Object{Kind: engine.ImageKind}
	other := of(vol, volume, 48*time.Hour)
	other.Labels = map[string]string{engine.LabelCache: "test-image"}
	for name, c := range map[string]struct {
		objects []engine.Object
		want    []bool
	}{
		"a pair of yesterday":                  {[]engine.Object{of(vol, volume, oldAfter), of(image, volume, oldAfter)}, []bool{true, true}},
		"a younger one":                        {[]engine.Object{of(vol, volume, oldAfter-1), of(image, volume, oldAfter-1)}, []bool{false, false}},
		"the image counts":                     {[]engine.Object{of(vol, volume, time.Hour), of(image, volume, oldAfter)}, []bool{true, true}},
		"the image counts, whatever the order": {[]engine.Object{of(image, volume, time.Hour), of(vol, volume, oldAfter)}, []bool{false, false}},
		"a volume without an image":            {[]engine.Object{of(vol, volume, oldAfter)}, []bool{true}},
		"an image without a volume":            {[]engine.Object{of(image, volume, oldAfter)}, []bool{true}},
		"an age that is not known":             {[]engine.Object{{Kind: engine.Volume, Name: volume, Labels: other.Labels}}, []bool{false}},
		"a current one":                        {[]engine.Object{of(vol, "fumehood-guest-ba9876543210-amd64-abcdefgh", 48*time.Hour)}, []bool{false}},
		"another cache":                        {[]engine.Object{other}, []bool{false}},
		"somebody else's volume":               {[]engine.Object{of(vol, "precious", 48*time.Hour)}, []bool{false}},
		"a container of the image":             {[]engine.Object{of(engine.Object{Kind: engine.Container}, volume, 48*time.Hour)}, []bool{false}},
	} {
		if got := oldGuests(c.objects, []string{"ba9876543210"}, now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// version connects a provider whose guests are another version's: the same program with something behind it. It cleans
// up the guests of versions whose names begin with the same six characters, the group.
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
		return guestbin.Binary{Program: slices.Concat(guest.Program, []byte(suffix)), Version: suffix}, err
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		for _, sb := range p.held {
			if err := sb.Close(ctx); err != nil {
				t.Error(err)
			}
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

func TestAllStartWhoMakeTheGuestAtTheSameTime(t *testing.T) {
	t.Parallel()
	group := newGroup()
	first := version(t, group)
	var all sync.WaitGroup
	for range tier.Pick(t, 4, 8, 8) {
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

// guestsOf lists the volumes and images of guests whose volume's name begins so, volumes first.
func guestsOf(ctx context.Context, t *testing.T, p *Provider, prefix string) []engine.Object {
	t.Helper()
	all, err := p.engine.Objects(ctx, engine.LabelCache+"=guest")
	if err != nil {
		t.Fatal(err)
	}
	engine.SortForRemoval(all)
	return slices.DeleteFunc(all, func(o engine.Object) bool { return !strings.HasPrefix(guestVolume(o), prefix) })
}

// age gives a provider's guest another image, of an earlier day. The Engine takes that from a registry only.
func age(t *testing.T, p *Provider) {
	t.Helper()
	ctx := t.Context()
	arch := p.server.Arch
	volume, err := p.ensureGuest(ctx, arch)
	if err != nil {
		t.Fatal(err)
	}
	guest, err := p.guestFor(t.Context(), arch, p.opts.Logger)
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.ConfigFile(image, aged(t, image, arch, map[string]string{engine.LabelCache: "guest", engine.LabelGuestVolume: volume}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/aged:1"
	tag, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image, remote.WithContext(ctx)); err != nil {
		t.Fatal(err)
	}
	before := guestsOf(ctx, t, p, volume)
	for n := 1; ; n++ {
		if err := p.engine.Pull(ctx, ref, "", "", func(engine.PullProgress) {}); err != nil {
			t.Fatal(err)
		}
		err := p.engine.Tag(ctx, ref, guestImage(guest.Version, arch))
		if err == nil {
			break
		}
		if n == 10 { // the clean-up of another process's test may take the old image before it is tagged
			t.Fatal(err)
		}
	}
	for _, o := range before { // the image that has lost its name
		if o.Kind == engine.ImageKind && time.Since(o.Created) < oldAfter {
			if err := p.engine.Remove(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func aged(t *testing.T, image v1.Image, arch string, labels map[string]string) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Labels = "linux", arch, labels
	config.Created = v1.Time{Time: time.Now().Add(-2 * oldAfter)}
	return config
}

func TestOldGuestsGoWhenAnotherVersionMakesItsOwnOrAtCleanup(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	spec := fumehood.Spec{Image: "fumehood-test/busybox"}
	works := func(p *Provider) *fumehood.Sandbox {
		t.Helper()
		sb, err := p.Start(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"echo", "works"}})
		if err != nil || res.Stdout.Text() != "works\n" {
			t.Fatalf("%+v, %v", res, err)
		}
		return sb
	}
	closed := func(sb *fumehood.Sandbox) {
		t.Helper()
		if err := sb.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	there := func(p *Provider, what string, want int) {
		t.Helper()
		guest, err := p.guestFor(ctx, p.server.Arch, p.opts.Logger)
		if err != nil {
			t.Fatal(err)
		}
		if got := guestsOf(ctx, t, p, volumePrefix+guest.Version); len(got) != want {
			t.Errorf("%s: there are %d objects of the version's, want %d: %+v", what, len(got), want, got)
		}
	}
	group := newGroup()
	unused, used, young := version(t, group), version(t, group), version(t, group)
	closed(works(unused))
	running := works(used)
	age(t, unused)
	age(t, used)

	closed(works(young)) // which makes a guest, and so looks for old ones
	there(unused, "old and not in use", 0)
	there(used, "old and in use", 2)

	cleaner := version(t, group)
	plan, err := cleaner.Cleanup(ctx, fumehood.CleanupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there(used, "old and in use, at the clean-up", 2)
	for _, l := range plan {
		if l.Name == used.volumes[used.server.Arch] && (l.Removed || l.Remove || l.Reason != "a cache in use") {
			t.Errorf("of a volume in use it is told: %+v", l)
		}
	}
	closed(running)
	if _, err := cleaner.Cleanup(ctx, fumehood.CleanupOptions{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	there(used, "old, at a dry run", 2)
	if _, err := cleaner.Cleanup(ctx, fumehood.CleanupOptions{}); err != nil {
		t.Fatal(err)
	}
	there(used, "old, after the clean-up", 0)
	there(young, "young, after the clean-up", 2)

	// The version that has lost its guest goes on: it makes it again.
	closed(works(used))
	there(used, "made again", 2)
}
