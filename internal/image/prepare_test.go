package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// fake is a store and builder in memory.
type fake struct {
	mu       sync.Mutex
	images   map[string]Image // by reference
	registry map[string]Image // what can be fetched
	busy     int              // how many more fetches and builds fail because the registry is busy
	slow     time.Duration    // how long a fetch or build takes
	calls    []string
	log      bytes.Buffer
}

func newFake() *fake {
	return &fake{images: map[string]Image{}, registry: map[string]Image{}}
}

// image returns an image for amd64.
func fakeImage(id string) Image { return Image{ID: id, OS: "linux", Arch: "amd64"} }

func (f *fake) preparer(t *testing.T) *Preparer {
	t.Helper()
	builtin := func(ref string) (Source, bool, error) {
		name, is := strings.CutPrefix(ref, BuiltinPrefix)
		return Source{Service: ref, Image: ref, Builtin: true, Build: &Build{Inline: "FROM base:1\nRUN " + name}}, is, nil
	}
	return &Preparer{Store: f, Builder: f, Builtin: builtin, Logger: slog.New(slog.NewTextHandler(&f.log, nil)), Progress: func(p provider.Progress) { f.call("step " + p.Image) }, Waits: Waits}
}

func (f *fake) call(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, text)
}

// take returns the calls since the last time, sorted.
func (f *fake) take() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.calls = nil }()
	slices.Sort(f.calls)
	return strings.Join(f.calls, ", ")
}

// work takes as long as a fetch or build, which may fail.
func (f *fake) work(ctx context.Context) error {
	select {
	case <-time.After(f.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy--; f.busy >= 0 {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: ErrBusy}
	}
	return nil
}

func (f *fake) Arch(context.Context) (string, error) { return "amd64", nil }

func (f *fake) Find(_ context.Context, ref string) (Image, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	image, found := f.images[ref]
	image.Ref = ref
	return image, found, nil
}

func (f *fake) Fetch(ctx context.Context, ref, platform string) error {
	f.call(strings.TrimSpace("fetch " + ref + " " + platform))
	if err := f.work(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	image, found := f.registry[ref]
	if !found {
		return &fumehood.Error{Op: "pull image " + ref, Class: fumehood.ErrConfig, Err: errors.New("manifest unknown")}
	}
	if platform != "" {
		image.Arch, _ = platformArch(platform)
	}
	f.images[ref] = image
	return nil
}

func (f *fake) Accepts(_ context.Context, s Source, _ Dockerfile) (bool, error) {
	if s.Build.Target == "refused" {
		return false, &fumehood.Error{Op: "build image", Class: fumehood.ErrUnsupported, Err: errors.New("refused")}
	}
	return true, nil
}

func (f *fake) FindBuilt(ctx context.Context, o Order) (Image, bool, error) {
	return f.Find(ctx, o.Tags[0])
}

func (f *fake) Build(ctx context.Context, o Order, _ *Tree) error {
	f.call("build: " + o.Text)
	o.Report("step")
	if err := f.work(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tag := range o.Tags {
		f.images[tag] = fakeImage("built")
	}
	return nil
}

// TestPreparer_plan plans projects whose images are built on one another. It does not contact a daemon.
func TestPreparer_plan(t *testing.T) {
	p := newFake().preparer(t)
	source := func(service, ref, dockerfile string) Source {
		s := Source{Service: service, Image: ref, Pull: PullMissing}
		if dockerfile != "" {
			s.Build = &Build{Inline: dockerfile}
		}
		return s
	}
	for name, c := range map[string]struct {
		sources []Source
		builds  string // the services, in order
		pulls   string
		says    string
	}{
		"a chain":            {[]Source{source("c", "c", "FROM b"), source("a", "a", "FROM x"), source("b", "b", "FROM a\nCOPY --from=y / /")}, "a b c", "x y", ""},
		"two of one image":   {[]Source{source("a", "x", ""), source("b", "x", "")}, "", "x", ""},
		"another's image":    {[]Source{source("a", "b:latest", ""), source("b", "b", "FROM x")}, "b", "x", ""},
		"its own name":       {[]Source{source("a", "x", "FROM x"), source("b", "b", "FROM x")}, "a b", "x", ""},
		"one that is ours":   {[]Source{source("a", "", "FROM fumehood-builtin/agent")}, "fumehood-builtin/agent a", "base:1", ""},
		"a circle":           {[]Source{source("a", "a", "FROM b"), source("b", "b", "FROM a")}, "", "", "cyclic image dependency"},
		"a circle of others": {[]Source{source("z", "a", ""), source("a", "a", "FROM b"), source("b", "b", "FROM a")}, "", "", "cyclic image dependency"},
	} {
		plan, err := p.plan(t.Context(), "amd64", c.sources)
		if err != nil {
			if c.says == "" || !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		var builds, pulls []string
		for _, n := range plan.builds {
			builds = append(builds, n.build.source.Service)
		}
		for w := range plan.pulls {
			pulls = append(pulls, w.ref)
		}
		slices.Sort(pulls)
		if strings.Join(builds, " ") != c.builds || strings.Join(pulls, " ") != c.pulls || c.says != "" {
			t.Errorf("%s: builds %q, pulls %q", name, builds, pulls)
		}
		for _, s := range c.sources {
			if plan.services[s.Service] == nil {
				t.Errorf("%s: %s has no image", name, s.Service)
			}
		}
	}
}

// TestPreparer_Prepare has a store with the images x, old, and arm for another platform.
func TestPreparer_Prepare(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	inline := func(service, ref, dockerfile string) Source {
		return Source{Service: service, Image: ref, Pull: PullMissing, Build: &Build{Inline: dockerfile}}
	}
	prebuilt, unsafe := fumehood.Compose{Prebuilt: true}, fumehood.Compose{AllowUnsafe: true}
	for name, c := range map[string]struct {
		opts    fumehood.Compose
		sources []Source
		only    bool   // BuildOnly
		calls   string // of the fake store
		want    string // the images by service
		class   error
		says    string
	}{
		"present":          {sources: []Source{{Service: "a", Image: "x"}}, want: "a=x"},
		"missing":          {sources: []Source{{Service: "a", Image: "y"}, {Service: "b", Image: "y"}}, calls: "fetch y", want: "a=y b=y"},
		"not there":        {sources: []Source{{Service: "a", Image: "none"}}, calls: "fetch none", class: fumehood.ErrConfig, says: "pull image none in service a: manifest unknown"},
		"always":           {sources: []Source{{Service: "a", Image: "x", Pull: PullAlways}}, calls: "fetch x", want: "a=x2"},
		"young enough":     {sources: []Source{{Service: "a", Image: "x", Pull: PullAlways, Age: time.Hour}}, want: "a=x"},
		"too old":          {sources: []Source{{Service: "a", Image: "old", Pull: PullAlways, Age: time.Hour}}, calls: "fetch old", want: "a=new"},
		"platform":         {sources: []Source{{Service: "a", Image: "x", Platform: "linux/arm64"}}, calls: "fetch x linux/arm64", want: "a=x2"},
		"other platform":   {sources: []Source{{Service: "a", Image: "arm"}}, class: fumehood.ErrConfig, says: "image arm is for linux/arm64, need linux/amd64"},
		"same platform":    {sources: []Source{{Service: "a", Image: "arm", Platform: "linux/arm64/v8"}}, want: "a=arm"},
		"no such platform": {sources: []Source{{Service: "a", Image: "x", Platform: "a/b/c/d"}}, calls: "fetch x a/b/c/d", class: fumehood.ErrConfig, says: "platform a/b/c/d"},
		"never":            {sources: []Source{{Service: "a", Image: "x", Pull: PullNever}}, want: "a=x"},
		"nothing is fetched if one may not be": {
			sources: []Source{{Service: "c", Image: "y"}, {Service: "b", Image: "n:1", Pull: PullNever}, {Service: "a", Image: "n:1", Pull: PullNever}, {Service: "d", Image: "n:2", Pull: PullNever}},
			class:   fumehood.ErrConfig, says: "missing: n:1 (a, b); n:2 (d) (pull or build them, or leave out pull_policy: never and x-local)",
		},
		"prebuilt": {
			opts: prebuilt, sources: []Source{{Service: "a", Image: "y", Pull: PullAlways}, {Service: "x", Image: "x", Pull: PullAlways}, inline("b", "", "FROM x"), inline("c", "", "FROM y")},
			class: fumehood.ErrConfig, says: "missing: build of its Dockerfile (b); build of its Dockerfile (c); y (a); y (c) (start the project once",
		},
		"build": {sources: []Source{inline("a", "", "FROM y")}, calls: "build: FROM y, fetch y, step a", want: "a=built"},
		"chain": {
			sources: []Source{inline("a", "top", "FROM b:latest"), inline("b", "b", "FROM x"), {Service: "c", Image: "b"}},
			calls:   "build: FROM fumehood-build:HASH, build: FROM x, step a, step b", want: "a=built b=built c=built",
		},
		"builtin":    {sources: []Source{{Service: "a", Image: "fumehood-builtin/z"}}, calls: "build: FROM base:1\nRUN z, step fumehood-builtin/z", want: "a=built"},
		"pinned":     {sources: []Source{inline("a", "", "FROM pinned")}, calls: "build: FROM pinned@sha256:1, step a", want: "a=built"},
		"build only": {sources: []Source{inline("a", "own", "FROM x"), {Service: "b", Image: "own"}, {Service: "c", Image: "none"}}, only: true, calls: "build: FROM x, step a", want: "a=built b=built"},
		"unsafe":     {sources: []Source{inline("a", "", "FROM x\nADD http://h/f /")}, class: fumehood.ErrFile, says: "(or allow it (--allow-unsafe))"},
		"unsafe, allowed": {
			opts: unsafe, sources: []Source{inline("a", "", "FROM x\nADD http://h/f /")}, calls: "build: FROM x\nADD http://h/f /, step a", want: "a=built",
		},
		"trigger":   {sources: []Source{inline("a", "", "FROM trigger")}, class: fumehood.ErrFile, says: "the image trigger has ONBUILD ADD http://h/f"},
		"bad name":  {sources: []Source{inline("a", "UPPER", "FROM x")}, class: fumehood.ErrConfig, says: "tag image UPPER"},
		"refused":   {sources: []Source{{Service: "a", Build: &Build{Inline: "FROM x", Target: "refused"}}}, class: fumehood.ErrUnsupported, says: "refused"},
		"no secret": {sources: []Source{{Service: "a", Build: &Build{Inline: "FROM x", Secrets: []Secret{{ID: "s", File: "/none"}}}}}, class: fumehood.ErrConfig, says: "read secret s"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			x, old, arm, trigger, pinned := fakeImage("x"), fakeImage("old"), fakeImage("arm"), fakeImage("t"), fakeImage("p")
			x.Tagged, old.Tagged, arm.Arch, pinned.Pinned = time.Now(), time.Now().Add(-2*time.Hour), "arm64", "pinned@sha256:1"
			trigger.OnBuild = []string{"ADD http://h/f /"}
			f.images = map[string]Image{"x": x, "old": old, "arm": arm, "trigger": trigger, "pinned": pinned, "base:1": fakeImage("base")}
			f.registry = map[string]Image{"x": fakeImage("x2"), "y": fakeImage("y"), "old": fakeImage("new")}
			images, err := f.preparer(t).Prepare(t.Context(), c.sources, &c.opts, provider.PrepareOptions{BuildOnly: c.only})
			var got []string
			for _, service := range slices.Sorted(maps.Keys(images)) {
				got = append(got, service+"="+images[service].ID)
			}
			if strings.Join(got, " ") != c.want || !errors.Is(err, c.class) || (err != nil) != (c.class != nil) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, %v", got, err)
			}
			calls := f.take()
			for tag := range f.images {
				if strings.HasPrefix(tag, BuiltPrefix) {
					calls = strings.ReplaceAll(calls, tag, BuiltPrefix+"HASH")
				}
			}
			if calls != c.calls {
				t.Errorf("got calls %q", calls)
			}
			if warned := strings.Contains(f.log.String(), "unsafe, allowed"); warned != (c.opts.AllowUnsafe && c.class == nil) {
				t.Errorf("logged %q", f.log.String())
			}
			if c.class != nil {
				return
			}
			again, err := f.preparer(t).Prepare(t.Context(), c.sources, &prebuilt, provider.PrepareOptions{BuildOnly: c.only})
			if calls := f.take(); c.opts.AllowUnsafe == (err == nil) || err == nil && !maps.EqualFunc(again, images, func(a, b Image) bool { return a.ID == b.ID }) || calls != "" {
				t.Errorf("again: %v, %v, calls %q", again, err, calls)
			}
		})
	}
}

// One fetch serves all callers, and stops with the last one.
func TestPreparer_Get(t *testing.T) {
	t.Run("together", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.registry["y"], f.slow = fakeImage("y"), time.Minute
			p := f.preparer(t)
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if image, err := p.Get(t.Context(), "y"); image.ID != "y" || err != nil {
						t.Error(image, err)
					}
				})
			}
			all.Wait()
			if calls := f.take(); calls != "fetch y" {
				t.Errorf("got calls %q", calls)
			}
		})
	})
	t.Run("canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.slow = time.Hour
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begun := time.Now()
			if _, err := f.preparer(t).Get(ctx, "y"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
				t.Error(err)
			}
		})
	})
	for busy, want := range map[int]error{0: nil, len(Waits): nil, len(Waits) + 1: fumehood.ErrInfrastructure} {
		t.Run(fmt.Sprintf("busy %d times", busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.registry["y"], f.busy = fakeImage("y"), busy
				if _, err := f.preparer(t).Get(t.Context(), "y"); !errors.Is(err, want) || (err != nil) != (want != nil) {
					t.Error(err)
				}
				if got := strings.Count(f.take(), "fetch y"); got != min(busy, len(Waits))+1 {
					t.Errorf("fetched %d times", got)
				}
			})
		})
	}
	t.Run("limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.slow = 2 * time.Hour
			_, err := f.preparer(t).Prepare(t.Context(), []Source{{Service: "a", Image: "y"}}, &fumehood.Compose{PullTimeout: time.Minute}, provider.PrepareOptions{})
			if !errors.Is(err, fumehood.ErrLimit) || !strings.Contains(err.Error(), "in service a: not done within the limit of 1m0s") {
				t.Error(err)
			}
		})
	})
}
