package task_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

// solving returns a solver that takes a while.
func solving(d time.Duration) task.Solver {
	return func(ctx context.Context, a *task.Attempt) error {
		<-time.After(d)
		return command("echo", a.Sample.ID)(ctx, a)
	}
}

func TestPool_startsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.takes = time.Second
		all, err := collect(t.Context(), y.options(10), task.RunOptions{MaxSandboxes: 2, Ahead: 1, Solve: solving(2 * time.Second)})
		if err != nil || len(all) != 10 {
			t.Fatalf("%q, %v", keys(all), err)
		}
		for i, r := range all {
			if waited := r.Phases["acquire"]; i > 0 && waited != 0 {
				t.Errorf("%s waited %v s for its sandbox", r.Sample, waited)
			}
			if r.Tries != 1 {
				t.Errorf("got %+v", r)
			}
		}
		if len(y.names) != 10 {
			t.Errorf("%d sandboxes were started for 10 attempts", len(y.names))
		}
		y.gone(t)
	})
}

func TestPool_takesStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.takes = time.Second
		began := time.Now()
		all, err := collect(t.Context(), y.options(10), task.RunOptions{MaxSandboxes: 4, Ahead: 2, MaxStarting: 4, Solve: solving(100 * time.Millisecond)})
		if err != nil || len(all) != 10 || len(y.names) != 10 {
			t.Fatalf("%q, %d starts, %v", keys(all), len(y.names), err)
		}
		// Four sandboxes start at once although two are used at once, which takes less time.
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		y.gone(t)
	})
}

func TestPool_sameSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.takes = time.Second
		opts := y.options(12)
		for i := range opts.Samples {
			opts.Samples[i].Spec = &fumehood.Spec{Env: map[string]string{"KIND": fmt.Sprint(i % 2)}}
		}
		all, err := collect(t.Context(), opts, task.RunOptions{MaxSandboxes: 4, Ahead: 2, Solve: func(ctx context.Context, a *task.Attempt) error {
			if err := solving(3*time.Second)(ctx, a); err != nil {
				return err
			}
			if got, want := a.Sandbox.Info().EnvNames, []string{"KIND"}; !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
			return nil
		}})
		if err != nil || len(all) != 12 || len(y.names) != 12 {
			t.Fatalf("%q, %d starts, %v", keys(all), len(y.names), err)
		}
		y.gone(t)
	})
}

func TestPool_singleUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.takes = 10 * time.Millisecond
		var mu sync.Mutex
		used := map[string]bool{}
		all, err := collect(t.Context(), y.options(200), task.RunOptions{MaxSandboxes: 16, Ahead: 8, MaxStarting: 16, Solve: func(ctx context.Context, a *task.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			name := a.Sandbox.Info().Name
			if used[name] {
				t.Errorf("%s was used before", name)
			}
			used[name] = true
			if a.Try == 1 && len(used)%10 == 0 {
				return errors.New("the line was cut")
			}
			return command("echo")(ctx, a)
		}})
		if err != nil || len(all) != 200 || len(used) < 210 {
			t.Errorf("%d results, %d sandboxes, %v", len(all), len(used), err)
		}
		y.gone(t)
	})
}

func TestPool_tooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		started := map[string]time.Time{}
		y.after = func(_ int, spec fumehood.Spec, _ fumehood.Sandbox) {
			y.mu.Lock()
			defer y.mu.Unlock()
			started[spec.Name] = time.Now()
		}
		all, err := collect(t.Context(), y.options(2), task.RunOptions{MaxSandboxes: 2, Ahead: 1, Solve: func(ctx context.Context, a *task.Attempt) error {
			y.mu.Lock()
			age := time.Since(started[a.Sandbox.Info().Name])
			y.mu.Unlock()
			if age > 5*time.Minute {
				t.Errorf("a sandbox has waited %v", age)
			}
			return solving(12*time.Minute)(ctx, a)
		}})
		// The first attempt's sandbox and, of the waiting ones, two that were too old and one that was used.
		if err != nil || len(all) != 2 || len(y.names) != 4 {
			t.Errorf("%d results, %d starts, %v", len(all), len(y.names), err)
		}
		y.gone(t)
	})
}

func TestPool_diesWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.after = func(_ int, _ fumehood.Spec, sb fumehood.Sandbox) {
			time.AfterFunc(10*time.Millisecond, func() {
				if task.KeyOf(sb.Info()) != (task.Key{}) {
					return // not started ahead, or already in use
				}
				if err := sb.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all, err := collect(t.Context(), y.options(20), task.RunOptions{MaxSandboxes: 2, Ahead: 1, Solve: solving(time.Second)})
		if err != nil || len(all) != 20 {
			t.Fatalf("%q, %v", keys(all), err)
		}
		for _, r := range all {
			if !passed(r) || r.Tries != 1 {
				t.Errorf("got %+v: %v", r, r.Error)
			}
		}
		if len(y.names) > 24 || len(y.names) == 20 { // some were started ahead, but soon no more
			t.Errorf("%d sandboxes were started", len(y.names))
		}
		y.gone(t)
	})
}

func TestPool_startFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.takes = time.Second
		y.fail = func(n int, spec fumehood.Spec) error {
			if spec.Labels[task.LabelSample] == "" && n < 10 {
				return errors.New("not now")
			}
			return nil
		}
		all, err := collect(t.Context(), y.options(20), task.RunOptions{MaxSandboxes: 4, Ahead: 2, Solve: solving(time.Second)})
		if err != nil || len(all) != 20 {
			t.Fatalf("%q, %v", keys(all), err)
		}
		for _, r := range all {
			if !passed(r) || r.Tries != 1 {
				t.Errorf("got %+v: %v", r, r.Error)
			}
		}
		y.gone(t)
	})
}

func TestPool_notShared(t *testing.T) {
	for name, change := range map[string]func(*task.Options){
		"a given port": func(o *task.Options) {
			o.Spec = fumehood.Spec{Network: fumehood.Network{Mode: fumehood.NetworkBridge}, Ports: []fumehood.Port{{Host: 8080, Container: 80}}}
		},
		"kept": func(o *task.Options) { o.Keep = true },
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard()
			y.fail = func(_ int, spec fumehood.Spec) error {
				if spec.Labels[task.LabelSample] == "" {
					t.Error("a sandbox was started ahead")
				}
				return nil
			}
			opts := y.options(5)
			change(&opts)
			if all, err := collect(t.Context(), opts, task.RunOptions{MaxSandboxes: 4, Ahead: 2, Solve: command("echo")}); err != nil || len(all) != 5 {
				t.Errorf("%q, %v", keys(all), err)
			}
			if err := y.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
