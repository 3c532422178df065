package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

var closePromises = []providerPromise{
	{"close/close removes all, also when canceled", func(t *testing.T, c *ProviderCase) {
		var names []string
		for range 2 {
			names = append(names, c.start(t, c.spec()).Info().Name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		for _, name := range names {
			c.wantGone(t, name)
		}
	}},
	{"close/start after close is ErrUnavailable", func(t *testing.T, c *ProviderCase) {
		for range 2 {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			spec := c.spec()
			_, err := c.Start(t.Context(), spec)
			WantError(t, err, fumehood.ErrUnavailable)
			c.wantGone(t, spec.Name)
		}
	}},
	{"close/start during close leaves no sandbox", func(t *testing.T, c *ProviderCase) {
		const starts = 4
		type ended struct {
			name string
			sb   fumehood.Sandbox
			err  error
		}
		all := make(chan ended, starts)
		for range starts {
			spec := c.spec()
			go func() {
				sb, err := c.Start(t.Context(), spec)
				all <- ended{spec.Name, sb, err}
			}()
		}
		first := <-all // the others have begun, or are about to
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		all <- first
		for range starts {
			e := <-all
			if e.err == nil {
				_, e.err = e.sb.Stat(t.Context(), ".")
			}
			WantError(t, e.err, fumehood.ErrUnavailable)
			c.wantGone(t, e.name)
		}
	}},
	{"close/close after an error retries", func(t *testing.T, c *ProviderCase) {
		if c.Hinder == nil {
			t.Skip("nothing hinders the removal of a sandbox here")
		}
		sb := c.start(t, c.spec())
		name := sb.Info().Name
		release := sync.OnceFunc(c.Hinder(t, sb))
		defer release()
		if err := c.Close(t.Context()); err == nil {
			t.Error("no error, although the sandbox cannot be removed")
		}
		release()
		if c.Exists != nil && !c.Exists(t, name) {
			t.Error("the sandbox is gone, although it could not be removed")
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		c.wantGone(t, name)
	}},
	{"close/failed start leaves nothing", func(t *testing.T, c *ProviderCase) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what is left of a start could block the next one
		defer cancel()
		spec, failing := c.spec(), c.Harness.Failing
		failing.Name = spec.Name
		for range 3 {
			if _, err := c.Start(ctx, failing); err == nil || ctx.Err() != nil {
				t.Fatalf("got %v, want the failure of the start", err)
			}
			c.wantGone(t, spec.Name)
		}
		sb, err := c.Start(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sb.Stat(ctx, "."); err != nil {
			t.Error(err)
		}
	}},
	{"close/canceled start leaves nothing", func(t *testing.T, c *ProviderCase) {
		spec := c.spec()
		for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			sb, err := c.Start(ctx, spec)
			cancel()
			switch {
			case err != nil:
				WantError(t, err, fumehood.ErrCanceled)
			case after == 0:
				t.Error("a start with a canceled context succeeded")
				fallthrough
			default:
				if err := sb.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			c.wantGone(t, spec.Name)
		}
	}},
	{"close/name in use is ErrConfig", func(t *testing.T, c *ProviderCase) {
		spec := c.spec()
		sb := c.start(t, spec)
		providers := []fumehood.Provider{c}
		if c.Another != nil {
			providers = append(providers, c.Another(t))
		}
		for _, p := range providers {
			_, err := p.Start(t.Context(), spec)
			WantError(t, err, fumehood.ErrConfig)
		}
		if _, err := sb.Stat(t.Context(), "."); err != nil {
			t.Errorf("the first sandbox: %v", err)
		}
	}},
}
