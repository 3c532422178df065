package conformance

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// ProviderHarness describes a provider to RunProvider. New is required.
type ProviderHarness struct {
	// New returns a new provider. The suite closes it. When t ends, nothing of its sandboxes may be left.
	New func(t *testing.T) Subject
	// Spec is the spec of sandboxes. The suite sets their names.
	Spec fumehood.Spec
	// Failing is the spec of sandboxes whose start fails.
	Failing fumehood.Spec
}

// Subject is a provider with what its promises need.
type Subject struct {
	fumehood.Provider
	// Hinder makes the removal of a sandbox fail until release is called. If it is nil, the promise about that is skipped.
	Hinder func(t *testing.T, sb fumehood.Sandbox) (release func())
	// Exists reports whether anything of a sandbox exists. It may be nil.
	Exists func(t *testing.T, sandbox string) bool
}

// RunProvider checks the promises about providers: what they do when they are closed (group "close"), and with the expiry
// of kept sandboxes (group "kept"). They do not depend on image, user or transport, so docs/promises.json does not list
// them.
func RunProvider(t *testing.T, h ProviderHarness) {
	for _, p := range providerPromises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := h.New(t)
			ctx := t.Context()
			t.Cleanup(func() {
				if err := s.Close(ctx); err != nil {
					t.Errorf("close the provider: %v", err)
				}
			})
			p.check(t, h, s)
		})
	}
}

var providerPromises = []struct {
	name  string // "group/promise"
	check func(t *testing.T, h ProviderHarness, s Subject)
}{
	{"close/start after close is ErrUnavailable", func(t *testing.T, h ProviderHarness, s Subject) {
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			spec := named(h.Spec)
			_, err := s.Start(t.Context(), spec)
			WantError(t, err, fumehood.ErrUnavailable)
			s.wantGone(t, spec.Name)
		}
	}},
	{"close/start during close leaves no sandbox", func(t *testing.T, h ProviderHarness, s Subject) {
		const starts = 4
		type ended struct {
			name string
			sb   fumehood.Sandbox
			err  error
		}
		all := make(chan ended, starts)
		for range starts {
			spec := named(h.Spec)
			go func() {
				sb, err := s.Start(t.Context(), spec)
				all <- ended{spec.Name, sb, err}
			}()
		}
		first := <-all // the others have begun, or are about to
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		all <- first
		for range starts {
			e := <-all
			if e.err == nil {
				_, e.err = e.sb.Stat(t.Context(), ".")
			}
			WantError(t, e.err, fumehood.ErrUnavailable)
			s.wantGone(t, e.name)
		}
	}},
	{"close/close after an error retries", func(t *testing.T, h ProviderHarness, s Subject) {
		if s.Hinder == nil {
			t.Skip("nothing hinders the removal of a sandbox here")
		}
		spec := named(h.Spec)
		sb, err := s.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		release := sync.OnceFunc(s.Hinder(t, sb))
		defer release()
		if err := s.Close(t.Context()); err == nil {
			t.Error("no error, although the sandbox cannot be removed")
		}
		release()
		if s.Exists != nil && !s.Exists(t, spec.Name) {
			t.Error("the sandbox is gone, although it could not be removed")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantGone(t, spec.Name)
	}},
	{"close/failed start leaves nothing", func(t *testing.T, h ProviderHarness, s Subject) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // what is left of a start could block the next one
		defer cancel()
		spec, failing := named(h.Spec), h.Failing
		failing.Name = spec.Name
		for range 3 {
			if _, err := s.Start(ctx, failing); err == nil || ctx.Err() != nil {
				t.Fatalf("got %v, want the failure of the start", err)
			}
			s.wantGone(t, spec.Name)
		}
		sb, err := s.Start(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sb.Stat(ctx, "."); err != nil {
			t.Error(err)
		}
	}},
	{"kept/list describes the sandbox", func(t *testing.T, h ProviderHarness, s Subject) {
		o := opener(t, s)
		h.Spec.Labels = map[string]string{"label": "value"}
		if h.Spec.Compose == nil {
			h.Spec.Env, h.Spec.ConfigFile = map[string]string{"NAME": "value"}, "/etc/hosts"
		}
		began := time.Now()
		spec := keptFor(t, h, s, 0)
		k := listed(t, o, spec.Name)
		if k.Provider != s.Name() || k.Labels["label"] != "value" || len(k.EnvNames) != len(spec.Env) || k.ConfigFile != spec.ConfigFile {
			t.Errorf("listed as %+v", k)
		}
		if k.Created.Before(began.Add(-time.Second)) || k.Created.After(time.Now().Add(time.Second)) {
			t.Errorf("it was created at %v, want after %v", k.Created, began)
		}
		for _, service := range k.Services {
			if k.States[service.Name] != "running" {
				t.Errorf("service %s is %q", service.Name, k.States[service.Name])
			}
		}
	}},
	{"kept/expiry is the TTL after the start", func(t *testing.T, h ProviderHarness, s Subject) {
		o := opener(t, s)
		began := time.Now()
		spec := keptFor(t, h, s, time.Hour)
		first, last := began.Add(time.Hour-time.Second), time.Now().Add(time.Hour)
		if until := listed(t, o, spec.Name).Expires; until.Before(first) || until.After(last) {
			t.Errorf("it expires at %v, want between %v and %v", until, first, last)
		}
		if until := listed(t, o, keptFor(t, h, s, 0).Name).Expires; !until.IsZero() {
			t.Errorf("a sandbox without a TTL expires at %v", until)
		}
	}},
	{"kept/renew returns the listed expiry", func(t *testing.T, h ProviderHarness, s Subject) {
		o := opener(t, s)
		name := keptFor(t, h, s, time.Hour).Name
		before := listed(t, o, name).Expires
		for _, ttl := range []time.Duration{2 * time.Hour, time.Minute} { // never earlier than before
			until, err := o.Renew(t.Context(), name, ttl)
			if err != nil {
				t.Fatal(err)
			}
			if listed := listed(t, o, name).Expires; !until.Equal(listed) || !until.After(before.Add(time.Hour/2)) {
				t.Errorf("renewed for %v: until %v, listed %v, before %v", ttl, until, listed, before)
			}
		}
	}},
}

// wantGone checks that nothing of a sandbox exists.
func (s Subject) wantGone(t *testing.T, sandbox string) {
	t.Helper()
	if s.Exists != nil && s.Exists(t, sandbox) {
		t.Errorf("something is left of %s", sandbox)
	}
}

// named returns the spec with a name that no other sandbox has.
func named(spec fumehood.Spec) fumehood.Spec {
	spec.Name = "promise-" + strings.ToLower(rand.Text()[:12])
	return spec
}

// opener returns the provider if it opens kept sandboxes. Otherwise it skips t.
func opener(t *testing.T, s Subject) provider.Opener {
	t.Helper()
	o, ok := s.Provider.(provider.Opener)
	if !ok {
		t.Skip("the provider does not list kept sandboxes")
	}
	return o
}

// keptFor starts a kept sandbox, closes it, and removes it when t ends.
func keptFor(t *testing.T, h ProviderHarness, s Subject, ttl time.Duration) fumehood.Spec {
	t.Helper()
	spec := named(h.Spec)
	spec.Keep, spec.TTL = true, ttl
	sb, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if _, err := s.Provider.(provider.Cleaner).Cleanup(ctx, provider.CleanupOptions{Names: []string{spec.Name}}); err != nil {
			t.Error(err)
		}
	})
	return spec
}

// listed returns how the provider lists a kept sandbox.
func listed(t *testing.T, o provider.Opener, name string) provider.KeptSandbox {
	t.Helper()
	found, err := o.Kept(t.Context(), name)
	if err != nil || len(found) != 1 || found[0].Name != name {
		t.Fatalf("%s is listed as %+v, %v", name, found, err)
	}
	return found[0]
}
