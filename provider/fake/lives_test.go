package fake_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/fake"
	"github.com/fumehood/fumehood/test/lifetest"
)

// Golden files have the journal of the main lives of a sandbox.
func TestLives(t *testing.T) {
	t.Parallel()
	p := func() *fake.Provider {
		return fake.New(fake.Options{Programs: map[string]fake.Program{
			"sh": func(_ context.Context, p *fake.Proc) int {
				fmt.Fprintln(p.Stdout, "out")
				return 3
			},
		}})
	}
	t.Run("run", func(t *testing.T) {
		r := lifetest.New()
		lifetest.Run(t, p(), r, fumehood.Spec{Name: "box"})
		r.Check(t, "run")
	})
	t.Run("failed", func(t *testing.T) {
		r, p := lifetest.New(), p()
		if _, err := p.Start(t.Context(), fumehood.Spec{Name: "box"}); err != nil {
			t.Fatal(err)
		}
		lifetest.FailStart(t, p, r, fumehood.Spec{Name: "box"}) // the name is taken
		r.Check(t, "failed")
	})
}
