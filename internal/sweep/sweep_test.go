package sweep

import (
	"errors"
	"strings"
	"testing"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/owner"
)

func TestPlan(t *testing.T) {
	ids := map[owner.State]owner.ID{
		owner.Alive:   {Host: "h", Boot: "b", PIDNS: "p", PID: 1, Start: 1},
		owner.Dead:    {Host: "h", Boot: "b", PIDNS: "p", PID: 2, Start: 1},
		owner.Unknown: {Host: "other", Boot: "b", PIDNS: "p", PID: 3, Start: 1},
	}
	judge := func(id owner.ID) owner.State {
		for s, have := range ids {
			if id == have {
				return s
			}
		}
		return owner.Unknown
	}
	object := func(sandbox string, s owner.State) Object {
		return Object{Kind: "container", Name: sandbox + "-default-1", Sandbox: sandbox, Owner: ids[s].String()}
	}
	kept := func(o Object) Object {
		o.Kept = true
		return o
	}
	objects := []Object{
		object("held", owner.Alive),
		object("left", owner.Dead),
		object("far", owner.Unknown),
		kept(object("kept", owner.Dead)),
		kept(object("kept-by-living", owner.Alive)),
		{Kind: "container", Name: "over", Sandbox: "over", Owner: ids[owner.Alive].String(), Kept: true, Expired: true},
		{Kind: "container", Name: "not-kept", Sandbox: "not-kept", Owner: ids[owner.Alive].String(), Expired: true},
		{Kind: "volume", Name: "guest", Owner: ids[owner.Dead].String(), Cache: true},
		{Kind: "volume", Name: "old-guest", Owner: ids[owner.Alive].String(), Cache: true, Old: true},
		{Kind: "container", Name: "torn", Sandbox: "torn", Owner: "garbage"},
	}
	for name, c := range map[string]struct {
		opts lazaret.CleanupOptions
		want string // what is removed
		err  string
	}{
		"what dead owners left, what is over and old caches": {lazaret.CleanupOptions{}, "left over old-guest", ""},
		"caches when asked":                      {lazaret.CleanupOptions{Caches: true}, "left over guest old-guest", ""},
		"caches beside what is named when asked": {lazaret.CleanupOptions{Caches: true, Names: []string{"kept"}}, "kept guest old-guest", ""},
		"a kept one by name":                     {lazaret.CleanupOptions{Names: []string{"kept"}}, "kept", ""},
		"a kept one of a living owner by name":   {lazaret.CleanupOptions{Names: []string{"kept-by-living"}}, "kept-by-living", ""},
		"one that cannot be judged, by name":     {lazaret.CleanupOptions{Names: []string{"far", "torn"}}, "far torn", ""},
		"never what a living owner holds":        {lazaret.CleanupOptions{Names: []string{"held"}}, "", "a running process holds held"},
		"a name that is not there is an error":   {lazaret.CleanupOptions{Names: []string{"left", "nope"}}, "", "no sandbox nope"},
		"an owner's label does not name a cache": {lazaret.CleanupOptions{Names: []string{"guest"}}, "", "no sandbox guest"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := Plan(objects, c.opts, judge)
			if c.err != "" {
				if !errors.Is(err, lazaret.ErrConfig) || !strings.Contains(err.Error(), c.err) || plan != nil {
					t.Fatalf("plan %v, error %v; want the error %q", plan, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var removed []string
			for i, l := range plan {
				if l.Remove {
					removed = append(removed, strings.TrimSuffix(objects[i].Name, "-default-1"))
				}
				if l.Reason == "" {
					t.Errorf("%s: no reason", objects[i].Name)
				}
			}
			if got := strings.Join(removed, " "); got != c.want {
				t.Errorf("removes %q, want %q", got, c.want)
			}
		})
	}
}
