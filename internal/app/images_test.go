package app

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/registry"
	"github.com/fumehood/fumehood/provider"
)

// planned returns an image with layers, each named after its size: "base 100".
func planned(ref string, here bool, layers ...string) *PlannedImage {
	i := &PlannedImage{NeededImage: provider.NeededImage{Kind: provider.NeededPull, Ref: ref}, Here: here}
	for _, l := range layers {
		_, text, _ := strings.Cut(l, " ")
		size, _ := strconv.ParseInt(text, 10, 64)
		i.layers, i.Size = append(i.layers, registry.Layer{Digest: l, Size: size}), i.Size+size
	}
	return i
}

func refs(images []*PlannedImage) string {
	var all []string
	for _, i := range images {
		all = append(all, i.Ref)
	}
	return strings.Join(all, " ")
}

func TestImagePlan_Choose(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		most        int64
		fetch, left string
	}{
		"no limit":      {0, "a b c default", ""},
		"all":           {161, "a b c", ""},
		"exactly":       {160, "a b c", ""},
		"without c":     {159, "a b", "c"},
		"shared layers": {60, "a b", "c"},
		"first only":    {59, "a", "b c"},
		"none":          {49, "", "a b c"},
	} {
		p := &ImagePlan{Images: []*PlannedImage{
			planned("here", true, "base 1000"),
			planned("a", false, "base 1000", "a 50"),
			planned("b", false, "a 50", "b 10"),
			{NeededImage: provider.NeededImage{Kind: provider.NeededBuild, Ref: "built"}, Size: -1},
			planned("c", false, "c 100"),
			{NeededImage: provider.NeededImage{Kind: provider.NeededDefault, Ref: "default"}, Size: -1},
		}}
		fetch, left := p.Choose(c.most)
		if refs(fetch) != c.fetch || refs(left) != c.left {
			t.Errorf("%s: got %q and %q", name, refs(fetch), refs(left))
		}
		if err := p.Failures("fetch"); (err != nil) != (c.most > 0) {
			t.Errorf("%s: the image of unknown size: %v", name, err)
		}
	}
}

func TestImagePlan_Totals(t *testing.T) {
	t.Parallel()
	broken := planned("x", false, "x 7")
	broken.Err = errors.New("no")
	p := &ImagePlan{Images: []*PlannedImage{
		planned("here", true, "base 1000", "h 1"),
		planned("a", false, "base 1000", "a 50"),
		planned("b", false, "a 50", "b 10"),
		broken,
		{NeededImage: provider.NeededImage{Kind: provider.NeededBuild, Ref: "built"}, Size: -1},
	}}
	if got, want := p.Totals(), (ImageTotals{Images: 3, Bytes: 2111, UniqueBytes: 1061, Missing: 2, MissingBytes: 60, Failed: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	err := p.Failures("plan images")
	if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "1 of 5 images failed:\nx: no") {
		t.Error(err)
	}
}

// fetcher records which images are fetched, and how many at once.
type fetcher struct {
	provider.ImageFetcher
	mu         sync.Mutex
	now, most  int
	got        []string
	full       chan struct{} // closed when so many are fetched at once
	once       sync.Once
	wantAtOnce int
}

func (f *fetcher) FetchImage(ctx context.Context, i provider.NeededImage) error {
	f.mu.Lock()
	f.now++
	f.most = max(f.most, f.now)
	f.got = append(f.got, i.Ref)
	if f.now == f.wantAtOnce {
		f.once.Do(func() { close(f.full) })
	}
	f.mu.Unlock()
	select {
	case <-f.full:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	if i.Ref == "b" {
		return errors.New("broken")
	}
	return nil
}

func TestFetchImages(t *testing.T) {
	t.Parallel()
	f := &fetcher{full: make(chan struct{}), wantAtOnce: 2}
	images := []*PlannedImage{planned("a", false), planned("b", false), planned("c", false), planned("d", false)}
	var ended []string
	err := FetchImages(t.Context(), f, images, 2, func(i *PlannedImage) { ended = append(ended, i.Ref) })
	slices.Sort(ended)
	slices.Sort(f.got)
	if err != nil || f.most > 2 || strings.Join(f.got, "") != "abcd" || strings.Join(ended, "") != "abcd" {
		t.Errorf("got %v, %d at once, fetched %v, reported %v", err, f.most, f.got, ended)
	}
	for _, i := range images {
		if (i.Err != nil) != (i.Ref == "b") || i.Here == (i.Ref == "b") {
			t.Errorf("%s: %v, %t", i.Ref, i.Err, i.Here)
		}
	}
}

func TestFetchImages_canceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &fetcher{full: make(chan struct{})}
	if err := FetchImages(ctx, f, []*PlannedImage{planned("a", false)}, 1, nil); !errors.Is(err, fumehood.ErrCanceled) || len(f.got) > 0 {
		t.Errorf("got %v, fetched %v", err, f.got)
	}
}

// named is a provider that can do nothing.
type named struct {
	fumehood.Provider
	name string
}

func (n named) Name() string { return n.name }

func TestImagePlanner_unsupported(t *testing.T) {
	t.Parallel()
	if _, err := ImagePlanner(named{name: "local"}); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "local") {
		t.Errorf("got %v", err)
	}
	_, err := ImageFetcher(struct{ provider.ImagePlanner }{})
	if e, ok := errors.AsType[*fumehood.Error](err); !ok || !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(e.Hint, "--print-daemonset") {
		t.Errorf("got %v", err)
	}
}
