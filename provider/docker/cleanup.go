package docker

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/sweep"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Cleaner = (*Provider)(nil)

// Cleanup removes what dead owners left in the daemon and in StateDir, old guests of other versions, and what
// the options name. A cache that is in use stays, which is no error.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	s := p.sweeper()
	s.among = p.among
	var err error
	if s.guests, err = p.currentGuests(ctx); err != nil {
		return nil, &fumehood.Error{Op: "clean up", Class: fumehood.ErrInfrastructure, Err: err}
	}
	return s.sweep(ctx, opts)
}

// sweeper finds and removes what Fumehood has made in one daemon, and sandboxes' folders.
type sweeper struct {
	engine           *engine.Client
	self             owner.ID
	stateDir, claims string // folders; empty where there are none
	clock            func() time.Time
	guests           []string // the versions of the guests that this process delivers, where among lets any guests go
	// among is what may be removed at all; nil means anything that the plan says.
	among func(m marked) bool
	// dead is an owner that is known to have ended; nil where there is none.
	dead *owner.ID
}

func (p *Provider) sweeper() *sweeper {
	return &sweeper{engine: p.engine, self: p.self, stateDir: p.stateDir, claims: claimsDir(), clock: p.clock}
}

// claimsDir is where processes claim that they live; empty where there is no such folder.
func claimsDir() string {
	dir, err := owner.StateDir("owners")
	if err != nil {
		return ""
	}
	return dir
}

// marked is something that carries our marks: an object of the daemon's, or a folder.
type marked struct {
	sweep.Object
	object *engine.Object // nil where it is a folder
}

// sweep looks for all that there is, plans, and carries the plan out.
func (s *sweeper) sweep(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	found, facts, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if s.among != nil {
		found = slices.DeleteFunc(found, func(m marked) bool { return !s.among(m) })
	}
	plan, err := sweep.Plan(marksOf(found), facts, opts)
	for _, pattern := range opts.Foreign {
		matches := func(l provider.Leftover) bool { is, _ := path.Match(pattern, l.Name); return l.Foreign && is }
		if err == nil && !slices.ContainsFunc(plan, matches) {
			plan, err = nil, &fumehood.Error{
				Op: "clean up", Class: fumehood.ErrConfig, Err: fmt.Errorf("no foreign object %s", pattern),
				Hint: "`fumehood cleanup --dry-run` lists what there is",
			}
		}
	}
	if err != nil || opts.DryRun {
		return plan, err
	}
	return plan, removal(s.engine, found).Carry(ctx, plan)
}

// look lists what there is, and finds out what a plan goes by. What time it is, this machine's clock says; but where that
// would have something removed, and the daemon's is behind it, that one counts.
func (s *sweeper) look(ctx context.Context) ([]marked, sweep.Facts, error) {
	objects, err := labelled(ctx, s.engine)
	if err != nil {
		return nil, sweep.Facts{}, err
	}
	var folders []owner.Folder
	if s.stateDir != "" {
		if folders, err = owner.Folders(s.stateDir); err != nil {
			return nil, sweep.Facts{}, err
		}
	}
	now := s.clock()
	found := marks(objects, folders, s.guests, now)
	if sweep.HasPassed(marksOf(found), now) || slices.ContainsFunc(found, func(m marked) bool { return m.Old }) {
		info, err := s.engine.Info(ctx)
		if err != nil {
			return nil, sweep.Facts{}, err
		}
		if !info.Time.IsZero() && info.Time.Before(now) {
			now = info.Time
			found = marks(objects, folders, s.guests, now)
		}
	}
	var claims map[string]time.Time
	if s.claims != "" {
		claims = owner.Claims(s.claims, s.self, now)
	}
	facts := sweep.Facts{Owners: sweep.Judge(s.self, marksOf(found), claims, now), Now: now}
	if s.dead != nil {
		facts.Owners[s.dead.String()] = owner.Dead
	}
	return found, facts, nil
}

// marks makes of what was found what a plan is made from. It is pure. A folder has the times of its sandbox.
func marks(objects []engine.Object, folders []owner.Folder, guests []string, now time.Time) []marked {
	old, unfinished := oldGuests(objects, guests, now), spareGuests(objects)
	expires, lease := map[string]time.Time{}, map[string]time.Time{}
	var all []marked
	for i, o := range objects {
		m := sweep.Object{
			Kind: string(o.Kind), Name: o.Name, Sandbox: o.Labels[owner.LabelSandbox], Owner: o.Labels[owner.LabelOwner],
			Kept: o.Labels[owner.LabelKept] == "true",
			// A container inherits its image's labels: it is no cache.
			Cache: o.Labels[owner.LabelCache] != "" && o.Kind != engine.Container, Old: old[i], Unfinished: unfinished[i],
			Lease: timeOf(o, owner.LabelLease), Foreign: o.Foreign,
		}
		if o.Kind == engine.ImageKind {
			m.Owner = o.Labels[owner.LabelMaker]
		}
		if m.Kept {
			m.Expires = timeOf(o, owner.LabelExpires)
		}
		if m.Sandbox != "" {
			expires[m.Sandbox], lease[m.Sandbox] = m.Expires, m.Lease
		}
		all = append(all, marked{m, &objects[i]})
	}
	for _, f := range folders {
		m := sweep.Folder(f)
		m.Expires, m.Lease = expires[m.Sandbox], lease[m.Sandbox]
		all = append(all, marked{m, nil})
	}
	return all
}

func marksOf(found []marked) []sweep.Object {
	all := make([]sweep.Object, len(found))
	for i, m := range found {
		all[i] = m.Object
	}
	return all
}

// timeOf is the time that a label tells; zero where it tells none.
func timeOf(o engine.Object, label string) time.Time {
	t, _ := time.Parse(time.RFC3339, o.Labels[label]) // zero on an error
	return t
}

// labelled lists what carries an owner's or a cache's label, in the order of removal. Images have no owner:
// their containers would inherit it.
func labelled(ctx context.Context, e *engine.Client) ([]engine.Object, error) {
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

// removals is how many removals run at once: the daemon does little in parallel.
const removals = 8

// refusals are the pauses before what the daemon has refused to remove is tried again.
var refusals = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

// removal removes what was found; the entries of the plan are those of found. The containers of a sandbox, which share a
// network, are removed one after the other: where several leave a network at once, an Engine may miscount those that are left,
// and refuse to remove the network until it is restarted (moby#42119); one before 23.0 may hang for good (moby#42545).
func removal(e *engine.Client, found []marked) sweep.Removal {
	remove := func(ctx context.Context, i int) error {
		if found[i].object == nil {
			return owner.Discard(found[i].Name)
		}
		return e.Remove(ctx, *found[i].object)
	}
	sandbox := func(i int) string {
		if o := found[i].object; o != nil && o.Kind == engine.Container {
			return o.Labels[owner.LabelSandbox]
		}
		return ""
	}
	return sweep.Removal{AtOnce: removals, Pauses: refusals, Remove: remove, Group: sandbox}
}

// removeAll removes objects, which are in the order of removal.
func removeAll(ctx context.Context, e *engine.Client, objects []engine.Object) error {
	plan, found := make([]provider.Leftover, len(objects)), make([]marked, len(objects))
	for i, o := range objects {
		plan[i] = provider.Leftover{Kind: string(o.Kind), Name: o.Name, Remove: true}
		found[i] = marked{object: &objects[i]}
	}
	return removal(e, found).Carry(ctx, plan)
}
