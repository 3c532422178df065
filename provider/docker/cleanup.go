package docker

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Cleaner = (*Provider)(nil)

// Cleanup removes what dead owners left in the daemon and in StateDir, old guest volumes of other versions, and what
// the options name. A cache in use stays, which is not an error.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	guests, err := p.currentGuests(ctx)
	if err != nil {
		return nil, &fumehood.Error{Op: "clean up", Class: fumehood.ErrInfrastructure, Err: err}
	}
	return p.sweeper(guests, func(sweep.Object) bool { return true }).sweep(ctx, opts)
}

// sweeper finds and removes Fumehood's objects in one daemon, and the folders of sandboxes.
type sweeper struct {
	engine   *engine.Client
	self     owner.ID
	stateDir string // empty without such a folder
	clock    func() time.Time
	guests   []string                  // the guest versions that this process delivers; nil keeps other versions
	isBad    func(volume string) bool  // reports whether a guest's volume holds something else
	among    func(o sweep.Object) bool // reports whether an object may be removed at all
}

func (p *Provider) sweeper(guests []string, among func(o sweep.Object) bool) *sweeper {
	return &sweeper{
		engine: p.engine, self: p.self, stateDir: p.stateDir, clock: p.clock, guests: guests, isBad: p.isBad,
		among: func(o sweep.Object) bool { return among(o) && (p.among == nil || p.among(o)) },
	}
}

// sweepUnasked removes, of the objects selected by among, those that are old or left by dead owners. It does so without
// being asked by the user, so it only logs the results.
func (p *Provider) sweepUnasked(ctx context.Context, guests []string, among func(o sweep.Object) bool) {
	plan, err := p.sweeper(guests, among).sweep(ctx, provider.CleanupOptions{})
	sweep.Log(ctx, p.opts.Logger, plan, err)
}

// sweep removes objects. Each pattern of foreign objects must have a match.
func (s *sweeper) sweep(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	r := removal
	r.Among = s.among
	return r.Run(ctx, opts, func(ctx context.Context) ([]sweep.Object, sweep.Facts, error) {
		found, facts, err := s.look(ctx)
		for _, pattern := range opts.Foreign {
			matches := func(o sweep.Object) bool {
				is, bad := path.Match(pattern, o.Name)
				return bad != nil || o.Foreign && is
			}
			if err == nil && !slices.ContainsFunc(found, matches) {
				err = &fumehood.Error{
					Op: "clean up", Class: fumehood.ErrConfig, Err: fmt.Errorf("no foreign object %s", pattern),
					Hint: "`fumehood cleanup --dry-run` lists all objects",
				}
			}
		}
		return found, facts, err
	})
}

// look lists the objects and collects the facts for a plan. The current time is that of this machine's clock. But if it
// would cause a removal and the daemon's clock is behind it, the daemon's time is used.
func (s *sweeper) look(ctx context.Context) ([]sweep.Object, sweep.Facts, error) {
	objects, err := listLabeled(ctx, s.engine)
	if err != nil {
		return nil, sweep.Facts{}, err
	}
	folders, err := owner.Folders(s.stateDir)
	if err != nil {
		return nil, sweep.Facts{}, err
	}
	found, now := s.marks(objects, folders), s.clock()
	candidates := slices.DeleteFunc(slices.Clone(found), func(o sweep.Object) bool { return !s.among(o) })
	if sweep.HasPassed(candidates, now) {
		info, err := s.engine.Info(ctx)
		if err != nil {
			return nil, sweep.Facts{}, err
		}
		if !info.Time.IsZero() && info.Time.Before(now) {
			now = info.Time
		}
	}
	dir, _ := owner.StateDir(claimsKind) // without a folder there are no claims
	return found, sweep.Facts{Owners: sweep.Judge(s.self, found, owner.Claims(dir, s.self, now), now), Now: now}, nil
}

// marks converts objects and folders to the input of a plan. A folder gets the expiry and lease of its sandbox.
func (s *sweeper) marks(objects []engine.Object, folders []owner.Folder) []sweep.Object {
	spare, guests := spareGuests(objects), map[string]sweep.Object{}
	var all []sweep.Object
	for _, o := range objects {
		m := mark(s.engine, o)
		m.Unfinished = m.Unfinished || spare[o.Name] || s.isBad(o.Name)
		if s.guests != nil && !m.Kept {
			m.Expires = oldFrom(o, s.guests)
		}
		all = append(all, m)
	}
	postpone(all)
	for _, m := range all {
		guests[m.Sandbox] = m
	}
	for _, f := range folders {
		m := sweep.Folder(f, func(_ context.Context, folder string) error { return owner.Discard(folder) })
		m.Expires, m.Lease = guests[m.Sandbox].Expires, guests[m.Sandbox].Lease
		all = append(all, m)
	}
	return all
}

// mark returns an object with the facts from its labels and a function that removes it. The containers of a sandbox
// share a network. They form a group, whose members are removed one after another. If several leave a network at once,
// an Engine may miscount the remaining ones and refuse to remove the network until it is restarted (moby#42119). An
// Engine before 23.0 may hang permanently (moby#42545).
func mark(e *engine.Client, o engine.Object) sweep.Object {
	m := sweep.Object{
		Kind: string(o.Kind), Name: o.Name, Sandbox: o.Labels[owner.LabelSandbox], Owner: o.Labels[owner.LabelOwner],
		Kept:    o.Labels[owner.LabelKept] == "true",
		Cache:   o.Labels[owner.LabelCache] != "",
		Created: o.Created, Lease: timeOf(o, owner.LabelLease), Foreign: o.Foreign,
		Remove: func(ctx context.Context) error { return e.Remove(ctx, o) },
	}
	switch o.Kind {
	case engine.Container:
		m.Cache, m.Group = false, m.Sandbox // it inherits the labels of its image, but is not a cache
	case engine.ImageKind:
		// Guest images are temporary: a volume is filled from them.
		m.Owner, m.Unfinished = o.Labels[owner.LabelMaker], o.Labels[owner.LabelCache] == owner.GuestCache
	case engine.Network, engine.Volume:
	}
	if m.Kept {
		m.Expires = timeOf(o, owner.LabelExpires)
	}
	return m
}

// timeOf returns the time in a label; zero if the label has no valid time.
func timeOf(o engine.Object, label string) time.Time {
	t, _ := time.Parse(time.RFC3339, o.Labels[label]) // zero on an error
	return t
}

// listLabeled lists the objects with an owner or cache label, in the order of removal. Images have no owner label, because
// their containers would inherit it.
func listLabeled(ctx context.Context, e *engine.Client) ([]engine.Object, error) {
	objects, err := e.Objects(ctx, owner.LabelOwner)
	if err != nil {
		return nil, err
	}
	cached, err := e.Objects(ctx, owner.LabelCache)
	if err != nil {
		return nil, err
	}
	for _, o := range cached {
		known := slices.ContainsFunc(objects, func(have engine.Object) bool { return have.Kind == o.Kind && have.ID == o.ID })
		if !known && o.Kind != engine.Container && !hasOtherNames(o) {
			objects = append(objects, o)
		}
	}
	engine.SortForRemoval(objects)
	return objects, e.Disown(ctx, objects)
}

// removal configures how objects are removed. It retries after Pauses if the daemon refuses a removal.
var removal = sweep.Removal{AtOnce: box.AtOnce, Pauses: []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}}

// removeAll removes objects. They must be in the order of removal.
func removeAll(ctx context.Context, e *engine.Client, objects []engine.Object) error {
	found := make([]sweep.Object, len(objects))
	for i, o := range objects {
		found[i] = mark(e, o)
	}
	return removal.All(ctx, found)
}
