package task

import (
	"testing"

	"github.com/lazaret/lazaret"
)

func TestTheMachineDecidesHowManySandboxesThereAre(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		machine lazaret.Machine
		limits  []lazaret.Limits // of the samples
		want    int
	}{
		"cores":                 {lazaret.Machine{CPUs: 8, Memory: 64 * gib}, []lazaret.Limits{{}}, 16},
		"memory":                {lazaret.Machine{CPUs: 8, Memory: 16 * gib}, []lazaret.Limits{{}}, 6},
		"small limits":          {lazaret.Machine{CPUs: 8, Memory: 4 * gib}, []lazaret.Limits{{Memory: gib / 4}}, 12},
		"many cores each":       {lazaret.Machine{CPUs: 8, Memory: 64 * gib}, []lazaret.Limits{{CPUs: 4}}, 4},
		"a part of a core each": {lazaret.Machine{CPUs: 8, Memory: 64 * gib}, []lazaret.Limits{{CPUs: 0.5}}, 16},
		"the largest counts":    {lazaret.Machine{CPUs: 8, Memory: 16 * gib}, []lazaret.Limits{{Memory: gib}, {Memory: 4 * gib}}, 3},
		"none fits":             {lazaret.Machine{CPUs: 1, Memory: gib}, []lazaret.Limits{{}}, 1},
		"no limit":              {lazaret.Machine{CPUs: 2, Memory: 8 * gib}, []lazaret.Limits{{Memory: lazaret.NoLimit, CPUs: lazaret.NoLimit}}, 3},
		"a memory nobody knows": {lazaret.Machine{CPUs: 3}, []lazaret.Limits{{}}, 6},
		"more than there are":   {lazaret.Machine{CPUs: 2, Memory: 64 * gib}, []lazaret.Limits{{CPUs: 16}}, 1},
	} {
		tk := &Task{}
		for _, l := range c.limits {
			tk.opts.Samples = append(tk.opts.Samples, Sample{Spec: &lazaret.Spec{Limits: l}})
		}
		if got := sandboxes(c.machine, tk.largest()); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
	}
}

func TestEnvironmentsAreToldApart(t *testing.T) {
	base := func() lazaret.Spec {
		return lazaret.Spec{Image: "a", Env: map[string]string{"A": "1", "B": "2"}, Limits: lazaret.Limits{Memory: 1 << 28}}
	}
	project := func() lazaret.Spec {
		return lazaret.Spec{Compose: &lazaret.Compose{Files: []string{"a", "b"}, Env: map[string]string{"A": "1"}}}
	}
	p := newPool(&Task{}, 1, nil, nil)
	for _, same := range []func() lazaret.Spec{base, project} {
		one, two := same(), same()
		one.Sample, two.Sample = lazaret.Sample{Task: "t", ID: "1", Epoch: 1}, lazaret.Sample{Task: "t", ID: "2", Epoch: 2}
		if s := p.shelfOf(one); s != p.shelfOf(two) || s.spec.Sample != (lazaret.Sample{Task: "t"}) {
			t.Errorf("two environments of %+v", one)
		}
	}
	before := len(p.shelves)
	others := map[string]lazaret.Spec{}
	for name, change := range map[string]func(*lazaret.Spec){
		"image":         func(s *lazaret.Spec) { s.Image = "b" },
		"env":           func(s *lazaret.Spec) { s.Env["A"] = "2" },
		"no text":       func(s *lazaret.Spec) { s.Env["A"] = "\xff" },
		"other no text": func(s *lazaret.Spec) { s.Env["A"] = "\xfe" },
		"nested":        func(s *lazaret.Spec) { s.Env["A"] = `1", "B":"2` },
		"limits":        func(s *lazaret.Spec) { s.Limits.CPUs = 0.5 },
		"mount":         func(s *lazaret.Spec) { s.Mounts = []lazaret.Mount{{Host: "/a", Container: "/a"}} },
		"writable":      func(s *lazaret.Spec) { s.Mounts = []lazaret.Mount{{Host: "/a", Container: "/a", Writable: true}} },
		"journal":       func(s *lazaret.Spec) { s.Journal = lazaret.NewJournal(nil, nil) },
	} {
		s := base()
		change(&s)
		others[name] = s
	}
	for name, change := range map[string]func(*lazaret.Compose){
		"files":   func(c *lazaret.Compose) { c.Files = []string{"a b"} },
		"project": func(c *lazaret.Compose) { c.Env["A"] = "2" },
		"service": func(c *lazaret.Compose) { c.Service = "x" },
	} {
		s := project()
		change(s.Compose)
		others[name] = s
	}
	for _, s := range others {
		p.shelfOf(s)
	}
	// The task's name is another one in these, and so they are other ones than the two above anyway.
	p.shelfOf(base())
	p.shelfOf(project())
	if got, want := len(p.shelves)-before, len(others)+2; got != want {
		t.Errorf("%d environments, not %d", got, want)
	}
}
