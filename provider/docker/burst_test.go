package docker_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/tier"
)

// While many sandboxes start, running sandboxes stay responsive: 99 of 100 commands take at most ten times as long as
// on an idle daemon. Both cases are measured alternately. Other load on the machine affects both, but not always
// equally, so only one of three bursts has to meet the limit.
func TestStart_burstLatency(t *testing.T) {
	t.Parallel()
	starts := tier.Pick(t, 6, 12, 100)
	p := newProvider(t, docker.Options{})
	running := make([]fumehood.Sandbox, tier.Pick(t, 2, 4, 4))
	for i := range running {
		running[i] = start(t, p, fumehood.Spec{Image: busybox})
	}
	commands(t, running, 20, nil) // starts the workers
	var calm, busy time.Duration
	for range 3 {
		calm = commands(t, running, tier.Pick(t, 100, 250, 250), nil)
		over := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(over)
			burst(t, p, starts)
		}()
		busy = commands(t, running, 0, over)
		<-over
		t.Logf("%d starts and removals took %v; p99 of commands meanwhile is %.1f times what it was", starts, time.Since(began), float64(busy)/float64(calm))
		if busy <= 10*calm {
			return
		}
	}
	t.Errorf("commands take %v in 99 of 100 cases while sandboxes start, and %v before", busy, calm)
}

// commands runs a command in each sandbox in turn, for a number of rounds or until over is closed. It returns the 99th
// percentile of the durations.
func commands(t *testing.T, sandboxes []fumehood.Sandbox, rounds int, over <-chan struct{}) time.Duration {
	t.Helper()
	var all []time.Duration
	for done := false; !done; {
		for _, sb := range sandboxes {
			began := time.Now()
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			if err != nil || !res.Success() {
				t.Fatal(res, err)
			}
			all = append(all, time.Since(began))
		}
		select {
		case <-over:
			done = true
		default:
			done = rounds > 0 && len(all) >= rounds*len(sandboxes)
		}
	}
	slices.Sort(all)
	t.Logf("%d commands: p50 %v, p99 %v", len(all), all[len(all)/2], all[len(all)*99/100])
	return all[len(all)*99/100]
}

// burst starts many sandboxes at once, and removes them when all have started.
func burst(t *testing.T, p *docker.Provider, n int) {
	sandboxes := make([]fumehood.Sandbox, n)
	var all sync.WaitGroup
	for i := range sandboxes {
		all.Go(func() {
			var err error
			if sandboxes[i], err = p.Start(t.Context(), fumehood.Spec{Image: busybox}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, sb := range sandboxes {
		if sb != nil {
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestStart_maxStarting(t *testing.T) {
	t.Parallel()
	p, proxy := faulty(t, docker.Options{MaxStarting: 2, MaxRunning: 3})
	proxy.Delay = 200 * time.Millisecond
	warm(t)
	var starting, most, there, mostThere atomic.Int64
	proxy.Decide(func(call string) faultproxy.Fault {
		switch call {
		case "POST /containers/create":
			most.Store(max(most.Load(), starting.Add(1)))
			mostThere.Store(max(mostThere.Load(), there.Add(1)))
		case "POST /containers/*/start": // the start has not ended yet, but no other start comes before its end
			starting.Add(-1)
			return faultproxy.Delay
		case "DELETE /containers/*":
			there.Add(-1)
		}
		return faultproxy.None
	})
	var all sync.WaitGroup
	for range tier.Pick(t, 6, 6, 9) {
		all.Go(func() {
			sb, err := p.Start(t.Context(), fumehood.Spec{Image: busybox})
			if err != nil {
				t.Error(err)
				return
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s, n := most.Load(), mostThere.Load(); s < 1 || s > 2 || n > 3 || there.Load() != 0 {
		t.Errorf("%d started at once and %d existed, want at most 2 and 3", s, n)
	}
}

func TestStart_slowDaemon(t *testing.T) {
	tier.Need(t, tier.All) // takes more than a minute; TestPace_followsDaemon tests the rule
	t.Parallel()
	p, proxy := faulty(t, docker.Options{MaxStarting: 4})
	proxy.Delay = 2 * time.Second // much longer than a busy daemon takes
	burst(t, p, 4)                // measures the daemon's normal response time
	const starts, last = 8, 2
	var created, starting, most atomic.Int64
	proxy.Decide(func(call string) faultproxy.Fault {
		switch {
		case call == "POST /containers/create":
			if now := starting.Add(1); created.Add(1) > starts-last {
				most.Store(max(most.Load(), now))
			}
		case call == "POST /containers/*/start":
			starting.Add(-1)
		case strings.HasPrefix(call, "GET /containers/"):
			return faultproxy.Delay
		}
		return faultproxy.None
	})
	burst(t, p, starts)
	if n := most.Load(); n != 1 {
		t.Errorf("%d of the last started at once although the daemon is slow", n)
	}
}
