package task_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider"
)

// A health check that fails in two sandboxes in a row is the task's fault. One failure may be the machine's.
func TestRun_unhealthy(t *testing.T) {
	sick := func(service string) error {
		err := &fumehood.Error{Op: "wait until healthy", Service: service, Class: fumehood.ErrUnavailable, Err: errors.New("it is unhealthy")}
		return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnavailable, Err: fmt.Errorf("%w\nand then: more", &provider.Unhealthy{Service: service, Err: err})}
	}
	gone := &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnavailable, Err: errors.New("the daemon is gone")}
	for name, c := range map[string]struct {
		starts  []error // one for each start; nil means that it succeeds
		retries int
		class   string // empty for a score
		tries   int
	}{
		"twice":           {[]error{sick("db"), sick("db"), sick("db")}, 0, task.Config, 2},
		"once":            {[]error{sick("db"), nil}, 0, "", 2},
		"different ones":  {[]error{sick("db"), sick("web"), sick("db")}, 0, task.Infra, 3},
		"in the end":      {[]error{sick("db"), sick("web"), sick("web")}, 0, task.Config, 3},
		"not in a row":    {[]error{sick("db"), gone, sick("db")}, 0, task.Infra, 3},
		"another failure": {[]error{gone, gone, gone}, 0, task.Infra, 3},
		"without retries": {[]error{sick("db")}, -1, task.Infra, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard()
				y.fail = func(n int, _ fumehood.Spec) error { return c.starts[n-1] }
				all, err := collect(t.Context(), y.options(1), task.RunOptions{Ahead: -1, Retries: c.retries, Solve: command("echo")})
				if err != nil || len(all) != 1 || all[0].Tries != c.tries {
					t.Fatalf("%+v, %v", all, err)
				}
				f := all[0].Error
				if c.class == "" {
					if f != nil {
						t.Errorf("got %+v", f)
					}
					return
				}
				if f == nil || f.Class != c.class || f.Phase != "start" || strings.Contains(f.Text, "became unhealthy in two sandboxes in a row") != (c.class == task.Config) {
					t.Errorf("got %+v", f)
				}
				y.gone(t)
			})
		})
	}
	t.Run("a grader's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard()
			all, err := collect(t.Context(), y.options(1), task.RunOptions{Ahead: -1, Solve: command("echo"), Score: func(context.Context, *task.Attempt) (task.Score, error) {
				return task.Score{}, sick("db")
			}})
			if err != nil || len(all) != 1 || all[0].Tries != 2 || all[0].Error.Class != task.Config || all[0].Error.Phase != "score" {
				t.Errorf("%+v, %v", all, err)
			}
		})
	})
}
