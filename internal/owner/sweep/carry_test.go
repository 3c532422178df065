package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// carry carries out a plan for objects in the given groups. The objects are removed by calling remove.
func carry(ctx context.Context, r Removal, plan []provider.Leftover, groups []string, remove func(i int) error) error {
	objects := make([]Object, len(plan))
	for i := range objects {
		objects[i].Remove = func(context.Context) error { return remove(i) }
		if groups != nil {
			objects[i].Group = groups[i]
		}
	}
	return r.Carry(ctx, objects, plan)
}

func TestCarry_kindsAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inUse := &fumehood.Error{Op: "remove", Class: fumehood.ErrUnavailable, Err: errors.New("in use")}
		plan := []provider.Leftover{
			{Kind: "container", Name: "a", Remove: true},
			{Kind: "container", Name: "b"},
			{Kind: "container", Name: "stubborn", Remove: true},
			{Kind: "network", Name: "late", Remove: true},
			{Kind: "volume", Name: "used", Remove: true},
			{Kind: "volume", Name: "cache", Remove: true, Cache: true},
		}
		var mu sync.Mutex
		tries := map[string]int{}
		var kinds []string
		err := carry(t.Context(), Removal{AtOnce: 2, Pauses: []time.Duration{time.Second, time.Second}}, plan, nil, func(i int) error {
			mu.Lock()
			defer mu.Unlock()
			l := plan[i]
			tries[l.Name]++
			if !slices.Contains(kinds, l.Kind) {
				kinds = append(kinds, l.Kind)
			}
			switch {
			case l.Name == "stubborn", l.Name == "late" && tries["late"] == 1, l.Name == "used", l.Name == "cache":
				return fmt.Errorf("%s %s: %w", l.Kind, l.Name, inUse)
			}
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "container stubborn") || !strings.Contains(err.Error(), "volume used") || strings.Contains(err.Error(), "cache") {
			t.Errorf("it says %v", err)
		}
		if got, want := fmt.Sprint(tries), "map[a:1 cache:1 late:2 stubborn:3 used:3]"; got != want {
			t.Errorf("tried %s, want %s", got, want)
		}
		if got := strings.Join(kinds, " "); got != "container network volume" {
			t.Errorf("in the order %s", got)
		}
		for i, want := range []struct{ removed, failed, remove bool }{
			{true, false, true}, {false, false, false}, {false, true, true}, {true, false, true}, {false, true, true}, {false, false, false},
		} {
			if l := plan[i]; l.Removed != want.removed || (l.Err != nil) != want.failed || l.Remove != want.remove {
				t.Errorf("%s: result %+v", l.Name, l)
			}
		}
	})
}

func TestCarry_contextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	plan := []provider.Leftover{{Kind: "folder", Remove: true}, {Kind: "folder", Remove: true}, {Kind: "volume", Remove: true}}
	n := 0
	err := carry(ctx, Removal{}, plan, nil, func(int) error {
		n++
		cancel()
		return nil
	})
	if n != 1 || !errors.Is(err, fumehood.ErrCanceled) || !plan[0].Removed || plan[1].Removed || plan[2].Removed {
		t.Errorf("%d removals, %v, %+v", n, err, plan)
	}
}

func TestCarry_groups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := make([]provider.Leftover, 7)
		groups := []string{"a", "", "a", "b", "", "b", "hung"}
		for i := range plan {
			plan[i] = provider.Leftover{Kind: "container", Remove: i != 5}
		}
		plan = append(plan, provider.Leftover{Kind: "container", Remove: true})
		groups = append(groups, "hung")
		begin := time.Now()
		var mu sync.Mutex
		began := make([]time.Duration, len(plan))
		err := carry(t.Context(), Removal{AtOnce: 8}, plan, groups, func(i int) error {
			mu.Lock()
			began[i] = time.Since(begin)
			mu.Unlock()
			takes := time.Second
			if i == 6 {
				takes = time.Minute
			}
			<-time.After(takes)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if got, want := fmt.Sprint(began), "[0s 0s 1s 0s 0s 0s 0s 5s]"; got != want {
			t.Errorf("they began at %s, want %s", got, want)
		}
		for i, l := range plan {
			if l.Removed != (i != 5) {
				t.Errorf("entry %d: result %+v", i, l)
			}
		}
	})
}
