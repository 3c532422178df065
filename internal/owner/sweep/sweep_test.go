package sweep

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

func TestPlan(t *testing.T) {
	ids := map[owner.State]string{
		owner.Alive:   "v1 h b p 1 1",
		owner.Dead:    "v1 h b p 2 1",
		owner.Unknown: "v1 other b p 3 1",
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	past, future := now.Add(-time.Second), now.Add(time.Second)
	facts := Facts{Owners: map[string]owner.State{ids[owner.Alive]: owner.Alive, ids[owner.Dead]: owner.Dead}, Now: now}
	object := func(sandbox string, s owner.State) Object {
		return Object{Kind: "container", Name: sandbox + "-default-1", Sandbox: sandbox, Owner: ids[s]}
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
		{Kind: "container", Name: "over", Sandbox: "over", Owner: ids[owner.Alive], Kept: true, Expires: past},
		{Kind: "container", Name: "not-over", Sandbox: "not-over", Owner: ids[owner.Dead], Kept: true, Expires: future, Lease: past},
		{Kind: "container", Name: "not-kept", Sandbox: "not-kept", Owner: ids[owner.Alive], Expires: past, Lease: past},
		{Kind: "network", Name: "lapsed", Sandbox: "lapsed", Owner: ids[owner.Unknown], Lease: past},
		{Kind: "network", Name: "leased", Sandbox: "leased", Owner: ids[owner.Unknown], Lease: future},
		{Kind: "volume", Name: "guest", Owner: ids[owner.Dead], Cache: true, Lease: past},
		{Kind: "volume", Name: "half-made", Owner: ids[owner.Dead], Cache: true, Unfinished: true},
		{Kind: "volume", Name: "being-made", Owner: ids[owner.Alive], Cache: true, Unfinished: true},
		{Kind: "volume", Name: "being-made-far-away", Owner: ids[owner.Unknown], Cache: true, Unfinished: true, Lease: future},
		{Kind: "image", Name: "half-made-far-away", Owner: ids[owner.Unknown], Cache: true, Unfinished: true, Lease: past},
		{Kind: "volume", Name: "other-guest", Owner: ids[owner.Dead], Cache: true, Expires: future},
		{Kind: "volume", Name: "old-guest", Owner: ids[owner.Alive], Cache: true, Expires: past},
		{Kind: "container", Name: "torn", Sandbox: "torn", Owner: "garbage"},
		{Kind: "container", Name: "foreign-1", Foreign: true},
		{Kind: "image", Name: "foreign-2", Cache: true, Expires: past, Unfinished: true, Owner: ids[owner.Dead], Foreign: true},
	}
	for name, c := range map[string]struct {
		opts provider.CleanupOptions
		want string // the removed objects
		err  string
	}{
		"what is left, over or old": {provider.CleanupOptions{}, "left over lapsed half-made half-made-far-away old-guest", ""},
		"caches when asked": {
			provider.CleanupOptions{Caches: true},
			"left over lapsed guest half-made being-made being-made-far-away half-made-far-away other-guest old-guest", "",
		},
		"foreign ones by name":    {provider.CleanupOptions{Foreign: []string{"foreign-2", "left", "none"}}, "left over lapsed half-made half-made-far-away old-guest foreign-2", ""},
		"foreign ones by pattern": {provider.CleanupOptions{Foreign: []string{"foreign-*"}}, "left over lapsed half-made half-made-far-away old-guest foreign-1 foreign-2", ""},
		"a bad pattern":           {provider.CleanupOptions{Foreign: []string{"["}}, "", "syntax error in pattern"},
		"caches and named ones": {
			provider.CleanupOptions{Caches: true, Names: []string{"kept"}},
			"kept guest half-made being-made being-made-far-away half-made-far-away other-guest old-guest", "",
		},
		"a kept one by name":            {provider.CleanupOptions{Names: []string{"kept"}}, "kept", ""},
		"one kept by a living owner":    {provider.CleanupOptions{Names: []string{"kept-by-living"}}, "kept-by-living", ""},
		"an unjudged one by name":       {provider.CleanupOptions{Names: []string{"far", "torn"}}, "far torn", ""},
		"not what a living owner holds": {provider.CleanupOptions{Names: []string{"held"}}, "", "a running process holds held"},
		"an unknown name":               {provider.CleanupOptions{Names: []string{"left", "nope"}}, "", "no sandbox nope"},
		"a cache by name":               {provider.CleanupOptions{Names: []string{"guest"}}, "", "no sandbox guest"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := Plan(objects, facts, c.opts)
			if c.err != "" {
				if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.err) || plan != nil {
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

func TestJudge_claims(t *testing.T) {
	self, err := owner.Self()
	if err != nil {
		t.Fatal(err)
	}
	dead := self
	dead.Start++
	far := func(host string) owner.ID { return owner.ID{Host: host, Boot: "b", PIDNS: "p", PID: 1, Start: 1} }
	now := time.Now()
	claims := map[string]time.Time{
		far("claiming").String(): now.Add(time.Second), far("silent").String(): now.Add(-time.Second), dead.String(): now.Add(time.Hour),
	}
	want := map[string]owner.State{
		self.String(): owner.Alive, dead.String(): owner.Dead, far("claiming").String(): owner.Alive,
		far("silent").String(): owner.Unknown, far("unheard").String(): owner.Unknown,
	}
	objects := []Object{{Owner: "garbage"}, {}}
	for id := range want {
		objects = append(objects, Object{Owner: id}, Object{Owner: id})
	}
	if got := Judge(self, objects, claims, now); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
