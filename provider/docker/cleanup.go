package docker

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/engine"
	"github.com/lazaret/lazaret/internal/owner"
	"github.com/lazaret/lazaret/internal/sweep"
)

var _ lazaret.Cleaner = (*Provider)(nil)

// Cleanup removes what dead owners left in the daemon and in StateDir, old guests of other versions, and what
// the options name. A cache that is in use stays, which is no error.
func (p *Provider) Cleanup(ctx context.Context, opts lazaret.CleanupOptions) ([]lazaret.Leftover, error) {
	objects, err := p.marked(ctx)
	if err != nil {
		return nil, err
	}
	folders, err := p.folders()
	if err != nil {
		return nil, err
	}
	current, err := p.currentGuests()
	if err != nil {
		return nil, &lazaret.Error{Op: "clean up", Class: lazaret.ErrInfrastructure, Err: err}
	}
	old, expired := oldGuests(objects, current, time.Now()), expired(objects, time.Now())
	var marks []sweep.Object
	for i, o := range objects {
		marks = append(marks, sweep.Object{
			Kind: string(o.Kind), Name: o.Name, Sandbox: o.Labels[engine.LabelSandbox], Owner: o.Labels[engine.LabelOwner],
			Kept: o.Labels[engine.LabelKept] == "true",
			// A container inherits its image's labels: it is no cache.
			Cache: o.Labels[engine.LabelCache] != "" && o.Kind != engine.Container, Old: old[i],
			Expired: expired[o.Labels[engine.LabelSandbox]],
		})
	}
	for _, f := range folders {
		mark := sweep.Folder(f)
		mark.Expired = expired[mark.Sandbox]
		marks = append(marks, mark)
	}
	plan, err := sweep.Plan(marks, opts, func(id owner.ID) owner.State { return owner.Judge(p.self, id) })
	if err != nil || opts.DryRun {
		return plan, err
	}
	var errs []error
	used := inUse{}
	for i := range plan {
		l := &plan[i]
		if !l.Remove {
			continue
		}
		var err error
		if i < len(objects) {
			err = used.remove(ctx, p.engine, objects[i])
		} else {
			err = os.RemoveAll(l.Name)
		}
		switch {
		case err == nil:
			l.Removed = true
		case l.Cache && errors.Is(err, lazaret.ErrUnavailable):
			l.Remove, l.Reason = false, "a cache in use"
		default:
			l.Err = err
			errs = append(errs, err)
		}
	}
	return plan, errors.Join(errs...)
}

// expired tells of each kept sandbox whether its time is over.
func expired(objects []engine.Object, now time.Time) map[string]bool {
	over := map[string]bool{}
	for _, o := range objects {
		if at, err := time.Parse(time.RFC3339, o.Labels[engine.LabelExpires]); err == nil && o.Labels[engine.LabelKept] == "true" {
			over[o.Labels[engine.LabelSandbox]] = now.After(at)
		}
	}
	return over
}

// folders lists the sandboxes' folders on this machine.
func (p *Provider) folders() ([]owner.Folder, error) {
	if p.stateDir == "" {
		return nil, nil
	}
	return owner.Folders(p.stateDir)
}

// marked lists what carries an owner's or a cache's label, in the order of removal. Images have no owner:
// their containers would inherit it.
func (p *Provider) marked(ctx context.Context) ([]engine.Object, error) {
	objects, err := p.engine.Objects(ctx, engine.LabelOwner)
	if err != nil {
		return nil, err
	}
	cached, err := p.engine.Objects(ctx, engine.LabelCache)
	if err != nil {
		return nil, err
	}
	for _, o := range cached {
		known := slices.ContainsFunc(objects, func(have engine.Object) bool { return have.Kind == o.Kind && have.ID == o.ID })
		if !known && o.Kind != engine.Container && !isForeign(o) {
			objects = append(objects, o)
		}
	}
	engine.SortForRemoval(objects)
	return objects, nil
}
