package host

import (
	"context"
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

func TestSweep(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(f *fake)
		class  error
	}{
		"all is well":       {func(f *fake) { f.say(1, `{"user":7,"survivors":2,"began":5}`) }, nil},
		"a negative user":   {func(f *fake) { f.say(1, `{"user":-1,"began":5}`) }, fumehood.ErrInfrastructure},
		"a negative count":  {func(f *fake) { f.say(1, `{"user":1,"survivors":-1,"began":5}`) }, fumehood.ErrInfrastructure},
		"no beginning":      {func(f *fake) { f.say(1, `{"user":1}`) }, fumehood.ErrInfrastructure},
		"a hidden /proc":    {func(f *fake) { f.say(1, `{"user":1,"pid":9}`) }, fumehood.ErrBroken},
		"no JSON":           {func(f *fake) { f.say(1, `none`) }, fumehood.ErrInfrastructure},
		"output":            {func(f *fake) { f.output(1, wire.Stdout, "x") }, fumehood.ErrInfrastructure},
		"an end":            {func(f *fake) { f.send(1, wire.Close) }, fumehood.ErrUnavailable},
		"a lost connection": {func(f *fake) { _ = f.conn.Close() }, fumehood.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			g, f := newFake(t)
			soon(t, func() {
				asked := make(chan wire.Request, 1)
				go func() {
					asked <- <-f.opened
					c.answer(f)
				}()
				dead := 1000
				got, err := g.Sweep(t.Context(), &dead, wire.Swept{Began: 3})
				if c.class == nil && (err != nil || got != wire.Swept{User: 7, Survivors: 2, Began: 5}) || c.class != nil && !errors.Is(err, c.class) {
					t.Errorf("got %+v, %v", got, err)
				}
				if r := <-asked; r.Sweep == nil || *r.Sweep.User != dead || r.Sweep.Since != 3 {
					t.Errorf("asked for %+v", r)
				}
			})
			if n := f.count(wire.Open); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestSweep_canceled(t *testing.T) {
	g, f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	soon(t, func() {
		go func() {
			<-f.opened
			cancel()
		}()
		if _, err := g.Sweep(ctx, nil, wire.Swept{}); !errors.Is(err, fumehood.ErrCanceled) {
			t.Errorf("got %v", err)
		}
	})
}
