package task

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

func TestSandboxes(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		machine provider.Machine
		limits  []fumehood.Limits // limits of the samples
		want    int
	}{
		"cores":                 {provider.Machine{CPUs: 8, Memory: 64 * gib}, []fumehood.Limits{{}}, 16},
		"memory":                {provider.Machine{CPUs: 8, Memory: 16 * gib}, []fumehood.Limits{{}}, 6},
		"small limits":          {provider.Machine{CPUs: 8, Memory: 4 * gib}, []fumehood.Limits{{Memory: gib / 4}}, 12},
		"many cores each":       {provider.Machine{CPUs: 8, Memory: 64 * gib}, []fumehood.Limits{{CPUs: 4}}, 4},
		"a part of a core each": {provider.Machine{CPUs: 8, Memory: 64 * gib}, []fumehood.Limits{{CPUs: 0.5}}, 16},
		"the largest counts":    {provider.Machine{CPUs: 8, Memory: 16 * gib}, []fumehood.Limits{{Memory: gib}, {Memory: 4 * gib}}, 3},
		"none fits":             {provider.Machine{CPUs: 1, Memory: gib}, []fumehood.Limits{{}}, 1},
		"no limit":              {provider.Machine{CPUs: 2, Memory: 8 * gib}, []fumehood.Limits{{Memory: fumehood.NoLimit, CPUs: fumehood.NoLimit}}, 3},
		"a memory nobody knows": {provider.Machine{CPUs: 3}, []fumehood.Limits{{}}, 6},
		"more than there are":   {provider.Machine{CPUs: 2, Memory: 64 * gib}, []fumehood.Limits{{CPUs: 16}}, 1},
	} {
		tk := &Task{}
		for _, l := range c.limits {
			tk.opts.Samples = append(tk.opts.Samples, Sample{Spec: &fumehood.Spec{Limits: l}})
		}
		if got := sandboxes(c.machine, tk.largest()); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestPool_bucketOf(t *testing.T) {
	base := func() fumehood.Spec {
		return fumehood.Spec{Image: "a", Env: map[string]string{"A": "1", "B": "2"}, Limits: fumehood.Limits{Memory: 1 << 28}}
	}
	project := func() fumehood.Spec {
		return fumehood.Spec{Compose: &fumehood.Compose{Files: []string{"a", "b"}, Env: map[string]string{"A": "1"}}}
	}
	p := newPool(&Task{opts: Options{Name: "t"}}, 1, nil, nil)
	for _, same := range []func() fumehood.Spec{base, project} {
		one, two := same(), same()
		one.Labels, two.Labels = p.task.labels(nil, Key{"1", 1}), p.task.labels(nil, Key{"2", 2})
		if s := p.bucketOf(one); s != p.bucketOf(two) || !maps.Equal(s.spec.Labels, map[string]string{LabelTask: "t"}) || len(one.Labels) != 3 {
			t.Errorf("different environments for equal specs %+v", one)
		}
	}
	before := len(p.buckets)
	others := map[string]fumehood.Spec{}
	for name, change := range map[string]func(*fumehood.Spec){
		"image":         func(s *fumehood.Spec) { s.Image = "b" },
		"env":           func(s *fumehood.Spec) { s.Env["A"] = "2" },
		"no text":       func(s *fumehood.Spec) { s.Env["A"] = "\xff" },
		"other no text": func(s *fumehood.Spec) { s.Env["A"] = "\xfe" },
		"nested":        func(s *fumehood.Spec) { s.Env["A"] = `1", "B":"2` },
		"limits":        func(s *fumehood.Spec) { s.Limits.CPUs = 0.5 },
		"mount":         func(s *fumehood.Spec) { s.Mounts = []fumehood.Mount{{Host: "/a", Container: "/a"}} },
		"writable":      func(s *fumehood.Spec) { s.Mounts = []fumehood.Mount{{Host: "/a", Container: "/a", Writable: true}} },
		"journal":       func(s *fumehood.Spec) { s.Journal = slog.New(slog.DiscardHandler) },
	} {
		s := base()
		change(&s)
		others[name] = s
	}
	for name, change := range map[string]func(*fumehood.Compose){
		"files":   func(c *fumehood.Compose) { c.Files = []string{"a b"} },
		"project": func(c *fumehood.Compose) { c.Env["A"] = "2" },
		"service": func(c *fumehood.Compose) { c.Service = "x" },
	} {
		s := project()
		change(s.Compose)
		others[name] = s
	}
	for _, s := range others {
		p.bucketOf(s)
	}
	// These have another task name, so they differ from the two above anyway.
	p.bucketOf(base())
	p.bucketOf(project())
	if got, want := len(p.buckets)-before, len(others)+2; got != want {
		t.Errorf("got %d environments, want %d", got, want)
	}
}
