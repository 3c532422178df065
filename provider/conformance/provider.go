package conformance

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// ProviderHarness describes a provider to RunProvider. Column, New and Failing are required.
type ProviderHarness struct {
	// Column names the provider in docs/promises.json: "docker provider".
	Column string
	// New returns a new provider. The suite closes it. When t ends, nothing of its sandboxes may be left.
	New func(t *testing.T) Subject
	// Spec is the spec of sandboxes. Where the promises of a group have no exceptions, the sandboxes have a shell. The
	// suite sets their names.
	Spec fumehood.Spec
	// Failing is the spec of sandboxes whose start fails.
	Failing fumehood.Spec
	// OneHostName reports whether all services of a sandbox have the host name of the default one.
	OneHostName bool
	// Exceptions lists the promises that this provider does not keep, by name.
	Exceptions map[string]ProviderException
}

// ProviderException replaces a promise that a provider does not keep. It is like Exception.
type ProviderException struct {
	Reason string
	Check  func(t *testing.T, c *ProviderCase)
}

// Subject is a provider with what its promises need.
type Subject struct {
	fumehood.Provider
	// Dir is the folder of the provider's state, for Owner.
	Dir string
	// Another returns a provider like that of another process, which the harness closes. It may be nil if Exceptions
	// covers the promises that need it.
	Another func(t *testing.T) fumehood.Provider
	// Hinder makes the removal of a sandbox fail until release is called. If it is nil, the promise about that is skipped.
	Hinder func(t *testing.T, sb fumehood.Sandbox) (release func())
	// Exists reports whether anything of a sandbox exists. It may be nil.
	Exists func(t *testing.T, sandbox string) bool
	// Guests returns how many resident guests a kept sandbox has. It may be nil.
	Guests func(t *testing.T, sandbox string) int
	// Only restricts Cleanup of Provider to sandboxes of these names, where other tests have sandboxes in the same place.
	// It may be nil.
	Only func(sandboxes ...string)
}

// ProviderCase is the fixture of one promise about a provider.
type ProviderCase struct {
	Subject
	Harness ProviderHarness
}

// providerPromise is one subtest of RunProvider.
type providerPromise struct {
	name  string // "group/promise"
	check func(t *testing.T, c *ProviderCase)
}

func providerPromises() []providerPromise {
	return slices.Concat(closePromises, keptPromises, keptCommandPromises, cleanupPromises, killedPromises, projectPromises)
}

func providerNames() (names []string) {
	for _, p := range providerPromises() {
		names = append(names, p.name)
	}
	return names
}

// RunProvider checks the promises about providers, their sandboxes as a whole, and later processes. They do not depend on
// image, user or transport. When all subtests have ended, it checks docs/promises.json like Run.
func RunProvider(t *testing.T, h ProviderHarness) {
	all := providerNames()
	for name, e := range h.Exceptions {
		if !slices.Contains(all, name) || e.Reason == "" || e.Check == nil {
			t.Errorf("Exceptions[%q] is no promise, or it needs a Reason and a Check", name)
		}
	}
	ran := &cells{text: map[string]string{}}
	t.Cleanup(func() { record(t, h.Column, all, ran.text, ran.begun == len(all)) })
	for _, p := range providerPromises() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			check, text := p.check, kept
			if e, ok := h.Exceptions[p.name]; ok {
				check, text = e.Check, excepted+e.Reason
			}
			ran.follow(t, p.name, text)
			c := &ProviderCase{Subject: h.New(t), Harness: h}
			ctx := t.Context()
			t.Cleanup(func() {
				if err := c.Close(ctx); err != nil {
					t.Errorf("close the provider: %v", err)
				}
			})
			check(t, c)
		})
	}
}

// exceptGroup returns the same exception for all promises of a group.
func exceptGroup(group string, e ProviderException) map[string]ProviderException {
	all := map[string]ProviderException{}
	for _, name := range providerNames() {
		if strings.HasPrefix(name, group+"/") {
			all[name] = e
		}
	}
	return all
}

// NoOpener returns the exceptions to the promises about kept sandboxes, for a provider that is no provider.Opener.
func NoOpener(reason string) map[string]ProviderException {
	return exceptGroup("kept", ProviderException{reason + "; it is no Opener", func(t *testing.T, c *ProviderCase) {
		if _, is := c.Provider.(provider.Opener); is {
			t.Error("it is a provider.Opener")
		}
	}})
}

// NoProjects returns the exceptions to the promises about Compose projects, for a provider that refuses them.
func NoProjects(reason string) map[string]ProviderException {
	return exceptGroup("project", ProviderException{reason + "; ErrUnsupported", func(t *testing.T, c *ProviderCase) {
		_, err := c.Start(t.Context(), fumehood.Spec{Compose: &fumehood.Compose{Content: "services: {default: {image: any}}"}})
		WantError(t, err, fumehood.ErrUnsupported)
	}})
}

// NoCleaner returns the exceptions to the promises about Cleanup and killed owners, for a provider that is no
// provider.Cleaner.
func NoCleaner(reason string) map[string]ProviderException {
	e := ProviderException{reason + "; it is no Cleaner", func(t *testing.T, c *ProviderCase) {
		if _, is := c.Provider.(provider.Cleaner); is {
			t.Error("it is a provider.Cleaner")
		}
	}}
	all := exceptGroup("cleanup", e)
	maps.Copy(all, exceptGroup("killed", e))
	return all
}

// NoReaper returns the exceptions to the promises about killed owners, for a provider without a reaper. leave leaves a
// sandbox as an owner does that has ended.
func NoReaper(reason string, leave func(t *testing.T, c *ProviderCase, name string)) map[string]ProviderException {
	return exceptGroup("killed", ProviderException{reason + "; Cleanup removes it", func(t *testing.T, c *ProviderCase) {
		name := c.spec().Name
		leave(t, c, name)
		if found, err := c.Provider.(provider.Cleaner).Cleanup(t.Context(), provider.CleanupOptions{}); err != nil || !removes(found, name) {
			t.Errorf("got %+v, %v", found, err)
		}
		c.wantGone(t, name)
	}})
}

// wantGone checks that nothing of a sandbox exists.
func (c *ProviderCase) wantGone(t *testing.T, sandbox string) {
	t.Helper()
	if c.Exists != nil && c.Exists(t, sandbox) {
		t.Errorf("something is left of %s", sandbox)
	}
}

// spec returns the spec of sandboxes, with a name that no other sandbox has.
func (c *ProviderCase) spec() fumehood.Spec {
	spec := c.Harness.Spec
	spec.Env, spec.Labels = maps.Clone(spec.Env), maps.Clone(spec.Labels)
	spec.Name = "promise-" + strings.ToLower(rand.Text()[:12])
	return spec
}

// start starts a sandbox, which the provider's Close removes.
func (c *ProviderCase) start(t *testing.T, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	sb, err := c.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// keep starts a kept sandbox, which must still exist when t ends. It is removed then.
func (c *ProviderCase) keep(t *testing.T, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	spec.Keep = true
	sb := c.start(t, spec)
	c.removeAfter(t, spec.Name)
	return sb
}

// removeAfter removes a kept sandbox when t ends. It must still exist then.
func (c *ProviderCase) removeAfter(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		found, err := c.Provider.(provider.Cleaner).Cleanup(ctx, provider.CleanupOptions{Names: []string{name}})
		if err != nil || !removes(found, name) {
			t.Errorf("the kept sandbox is not removed: %+v, %v", found, err)
		}
		c.wantGone(t, name)
	})
}

// keepClosed starts a kept sandbox and closes it.
func (c *ProviderCase) keepClosed(t *testing.T, spec fumehood.Spec) (name string) {
	t.Helper()
	if err := c.keep(t, spec).Close(t.Context()); err != nil {
		t.Error(err)
	}
	return spec.Name
}

// removes reports whether Cleanup has removed something of a sandbox.
func removes(found []provider.Leftover, sandbox string) bool {
	return slices.ContainsFunc(found, func(l provider.Leftover) bool { return l.Sandbox == sandbox && l.Removed })
}

// open opens a kept sandbox as another process does. It is closed when t ends.
func (c *ProviderCase) open(t *testing.T, name string) fumehood.Sandbox {
	t.Helper()
	sb, err := c.Another(t).(provider.Opener).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return sb
}

// only restricts Cleanup to sandboxes of these names.
func (c *ProviderCase) only(names ...string) {
	if c.Only != nil {
		c.Only(names...)
	}
}

// findKept returns how the provider lists a kept sandbox; nil if it does not.
func (c *ProviderCase) findKept(t *testing.T, name string) *provider.KeptSandbox {
	t.Helper()
	found, err := c.Provider.(provider.Opener).Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	named, err := c.Provider.(provider.Opener).Kept(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(found, func(k provider.KeptSandbox) bool { return k.Name == name })
	if len(named) > 1 || (len(named) == 1) != (i >= 0) {
		t.Errorf("%s is listed as %+v, and by its name as %+v", name, found, named)
	}
	if i < 0 {
		return nil
	}
	return &found[i]
}

// wantListed returns how the provider lists a kept sandbox.
func (c *ProviderCase) wantListed(t *testing.T, name string) *provider.KeptSandbox {
	t.Helper()
	k := c.findKept(t, name)
	if k == nil {
		t.Fatalf("%s is not listed", name)
	}
	return k
}

// sh runs a script that must succeed, and returns its output.
func sh(t *testing.T, s fumehood.Service, script string) string {
	t.Helper()
	res, err := s.Exec(t.Context(), shell(script))
	if err != nil || !res.Success() {
		t.Fatalf("%s: %+v, %v", script, res, err)
	}
	return strings.TrimSpace(res.Stdout.Text())
}

func shell(script string) fumehood.Cmd {
	return fumehood.Cmd{Args: []string{"sh", "-c", script}, Timeout: commandBound}
}
