package task

import (
	"context"
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
)

// An attempt may begin, and start its own sandbox, while the pool looks for the next attempts. It needs no other one.
func TestPool_tend_attemptBegins(t *testing.T) {
	environment, looks := &bucket{}, 0
	var p *pool
	launch := func(context.Context, string, fumehood.Spec) (fumehood.Sandbox, error) {
		t.Error("a sandbox is started ahead")
		return nil, errors.New("not needed")
	}
	p = newPool(nil, 1, launch, func(int) []*bucket {
		if looks++; looks > 1 {
			return nil
		}
		p.expect(environment)
		if p.take(t.Context(), environment) != nil {
			t.Error("a sandbox was waiting")
		}
		return []*bucket{environment} // as it was before
	})
	p.tend(t.Context())
	p.work.Wait()
	if looks != 2 {
		t.Errorf("the pool looked %d times", looks)
	}
}
