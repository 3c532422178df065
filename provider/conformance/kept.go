package conformance

import (
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

var keptPromises = []providerPromise{
	{"kept/list and open describe the sandbox", func(t *testing.T, c *ProviderCase) {
		began := time.Now()
		spec := c.spec()
		spec.Labels = map[string]string{"label": "value"}
		if spec.Compose == nil {
			spec.Env, spec.ConfigFile = map[string]string{"NAME": "value", "A,B": ""}, "/etc/hosts"
		}
		c.keepClosed(t, spec)
		k := c.wantListed(t, spec.Name)
		opened := c.open(t, spec.Name)
		for way, info := range map[string]fumehood.Info{"listed": k.Info, "opened": opened.Info()} {
			if info.Provider != c.Name() || info.Labels["label"] != "value" || len(info.EnvNames) != len(spec.Env) || info.ConfigFile != spec.ConfigFile {
				t.Errorf("%s as %+v", way, info)
			}
			if s := info.Services[0]; s.Dir == "" || s.Image != spec.Image {
				t.Errorf("%s with the service %+v", way, s)
			}
		}
		if k.Created.Before(began.Add(-time.Second)) || k.Created.After(time.Now().Add(time.Second)) {
			t.Errorf("it was created at %v, want after %v", k.Created, began)
		}
		for _, service := range k.Services {
			if k.States[service.Name] != "running" {
				t.Errorf("service %s is %q", service.Name, k.States[service.Name])
			}
		}
		if got := sh(t, opened, "echo $NAME"); got != spec.Env["NAME"] {
			t.Errorf("a command has the variable %q", got)
		}
		if got := sh(t, opened.As("1001"), "id -u; echo $NAME"); got != "1001\n"+spec.Env["NAME"] {
			t.Errorf("a command of another user: %q", got)
		}
	}},
	{"kept/name unknown or not kept is ErrConfig", func(t *testing.T, c *ProviderCase) {
		held := c.start(t, c.spec()).Info().Name
		o := c.Provider.(provider.Opener)
		for _, name := range []string{"unknown", held, "", ".", "..", "../x/" + held} {
			_, err := o.Open(t.Context(), name)
			WantError(t, err, fumehood.ErrConfig)
			_, err = o.Renew(t.Context(), name, time.Hour)
			WantError(t, err, fumehood.ErrConfig)
			WantError(t, o.Logs(t.Context(), name, "", provider.LogOptions{}, nil), fumehood.ErrConfig)
		}
		if k := c.findKept(t, held); k != nil {
			t.Errorf("a sandbox that is not kept is listed as %+v", k)
		}
		spec := c.spec()
		spec.TTL = time.Hour
		_, err := c.Start(t.Context(), spec)
		WantError(t, err, fumehood.ErrConfig)
	}},
	{"kept/open after close is ErrUnavailable", func(t *testing.T, c *ProviderCase) {
		name := c.keepClosed(t, c.spec())
		another := c.Another(t)
		if err := another.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_, err := another.(provider.Opener).Open(t.Context(), name)
		WantError(t, err, fumehood.ErrUnavailable)
	}},
	{"kept/name stays in use", func(t *testing.T, c *ProviderCase) {
		spec := c.spec()
		c.keepClosed(t, spec)
		_, err := c.Start(t.Context(), spec)
		WantError(t, err, fumehood.ErrConfig)
	}},
	{"kept/expiry is the TTL after the start", func(t *testing.T, c *ProviderCase) {
		began := time.Now()
		spec := c.spec()
		spec.TTL = time.Hour
		c.keepClosed(t, spec)
		first, last := began.Add(time.Hour-time.Second), time.Now().Add(time.Hour)
		if until := c.wantListed(t, spec.Name).Expires; until.Before(first) || until.After(last) {
			t.Errorf("it expires at %v, want between %v and %v", until, first, last)
		}
		if until := c.wantListed(t, c.keepClosed(t, c.spec())).Expires; !until.IsZero() {
			t.Errorf("a sandbox without a TTL expires at %v", until)
		}
	}},
	{"kept/renew returns the listed expiry", func(t *testing.T, c *ProviderCase) {
		const ttl = 3 * time.Second
		spec, created := c.spec(), time.Now()
		spec.TTL = ttl
		name, o := c.keepClosed(t, spec), c.Another(t).(provider.Opener)
		var until time.Time
		for _, more := range []time.Duration{time.Hour, 2 * time.Hour, time.Second} { // never earlier than before
			began := time.Now()
			next, err := o.Renew(t.Context(), name, more)
			if err != nil {
				t.Fatal(err)
			}
			if listed := c.wantListed(t, name).Expires; !next.Equal(listed) || next.Before(until) || next.Before(began.Add(more-time.Second)) {
				t.Errorf("renewed for %v: until %v, listed %v, before %v", more, next, listed, until)
			}
			until = next
		}
		forever := c.keepClosed(t, c.spec())
		c.only(name, forever)
		if next, err := o.Renew(t.Context(), forever, time.Hour); err != nil || !next.IsZero() || !c.wantListed(t, forever).Expires.IsZero() {
			t.Errorf("renewed what does not expire: %v, %v", next, err)
		}
		Eventually(t, "its first time is over", func() bool { return time.Since(created) > ttl+2*time.Second })
		if found, err := c.Provider.(provider.Cleaner).Cleanup(t.Context(), provider.CleanupOptions{}); err != nil || removes(found, name) {
			t.Errorf("a cleanup after its first time: %+v, %v", found, err)
		}
	}},
	{"kept/log of an idle service is ErrUnsupported", func(t *testing.T, c *ProviderCase) {
		name := c.keepClosed(t, c.spec())
		o := c.Another(t).(provider.Opener)
		WantError(t, o.Logs(t.Context(), name, "", provider.LogOptions{}, nil), fumehood.ErrUnsupported)
		WantError(t, o.Logs(t.Context(), name, "nobody", provider.LogOptions{}, nil), fumehood.ErrConfig)
	}},
	{"kept/expired sandbox is removed by cleanup", func(t *testing.T, c *ProviderCase) {
		spec, over := c.spec(), c.spec()
		spec.TTL, over.TTL, over.Keep = time.Hour, time.Nanosecond, true
		c.only(spec.Name, over.Name)
		c.keep(t, spec)
		expired := c.start(t, over)
		another := c.Another(t) // the start of another sandbox does not remove it
		if _, err := another.Start(t.Context(), c.spec()); err != nil {
			t.Fatal(err)
		}
		if err := another.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		sh(t, expired, "true")
		Eventually(t, "the expired sandbox is removed", func() bool {
			found, err := c.Provider.(provider.Cleaner).Cleanup(t.Context(), provider.CleanupOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return removes(found, over.Name)
		})
		c.wantGone(t, over.Name)
		if k := c.wantListed(t, spec.Name); k.States[k.Services[0].Name] != "running" {
			t.Errorf("the other sandbox is %v", k.States)
		}
		_, err := expired.Exec(t.Context(), shell("true"))
		WantError(t, err, fumehood.ErrUnavailable)
	}},
}

var cleanupPromises = []providerPromise{
	{"cleanup/kept sandbox stays until it is named", func(t *testing.T, c *ProviderCase) {
		cleaner := c.Provider.(provider.Cleaner)
		spec := c.spec()
		spec.Keep = true
		c.only(spec.Name)
		if err := c.start(t, spec).Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, opts := range []provider.CleanupOptions{{}, {DryRun: true}, {Names: []string{spec.Name}, DryRun: true}} {
			found, err := cleaner.Cleanup(t.Context(), opts)
			if err != nil || removes(found, spec.Name) || c.Exists != nil && !c.Exists(t, spec.Name) {
				t.Errorf("%+v: %+v, %v", opts, found, err)
			}
		}
		_, err := cleaner.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{spec.Name, "unknown"}})
		WantError(t, err, fumehood.ErrConfig)
		if found, err := cleaner.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{spec.Name}}); err != nil || !removes(found, spec.Name) {
			t.Errorf("it is not removed: %+v, %v", found, err)
		}
		c.wantGone(t, spec.Name)
		if _, err := c.start(t, spec).Stat(t.Context(), "."); err != nil { // its name is free
			t.Error(err)
		}
		if found, err := cleaner.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{spec.Name}}); err != nil || !removes(found, spec.Name) {
			t.Errorf("the next one is not removed: %+v, %v", found, err)
		}
	}},
	{"cleanup/sandbox in use stays", func(t *testing.T, c *ProviderCase) {
		sb := c.start(t, c.spec())
		name := sb.Info().Name
		c.only(name)
		cleaner := c.Provider.(provider.Cleaner)
		found, err := cleaner.Cleanup(t.Context(), provider.CleanupOptions{})
		alive := false
		for _, l := range found {
			alive = alive || l.Sandbox == name && !l.Remove && l.Owner == "alive"
		}
		if err != nil || !alive {
			t.Errorf("got %+v, %v", found, err)
		}
		_, err = cleaner.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{name}})
		WantError(t, err, fumehood.ErrConfig)
		if _, err := sb.Stat(t.Context(), "."); err != nil {
			t.Error(err)
		}
	}},
}
