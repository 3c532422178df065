package docker

import (
	"context"
	"time"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
)

// extend postpones the expiry of a kept sandbox. An Engine cannot change labels. The new expiry is therefore a label of an
// empty volume that belongs to the sandbox. The latest expiry of a sandbox's objects counts.
func (p *Provider) extend(ctx context.Context, name string, until time.Time) error {
	old, err := p.renewals(ctx, name)
	if err != nil {
		return err
	}
	labels := p.ownerLabels()
	labels[owner.LabelSandbox], labels[owner.LabelKept], labels[owner.LabelRenewed] = name, "true", name
	labels[owner.LabelExpires] = until.Format(time.RFC3339)
	if err := p.engine.CreateVolume(ctx, name+"-until-"+until.Format("20060102T150405Z"), labels); err != nil {
		return err
	}
	if err := removeAll(context.WithoutCancel(ctx), p.engine, old); err != nil { // the latest one counts anyway
		p.opts.Logger.Debug("an earlier expiry of a sandbox stays until its removal", "sandbox", name, "error", err)
	}
	return nil
}

// renewals lists the volumes with new expiries of a sandbox or, if name is empty, of all.
func (p *Provider) renewals(ctx context.Context, name string) ([]engine.Object, error) {
	label := owner.LabelRenewed
	if name != "" {
		label += "=" + name
	}
	objects, err := p.engine.Objects(ctx, label, engine.Volume)
	if err == nil {
		err = p.engine.Disown(ctx, objects)
	}
	own := objects[:0]
	for _, o := range objects {
		if !o.Foreign {
			own = append(own, o)
		}
	}
	return own, err
}

// postpone gives all objects of a kept sandbox that expires the latest expiry of any.
func postpone(objects []sweep.Object) {
	latest := map[string]time.Time{}
	for _, o := range objects {
		if o.Kept && !o.Foreign && o.Expires.After(latest[o.Sandbox]) {
			latest[o.Sandbox] = o.Expires
		}
	}
	for i, o := range objects {
		if o.Kept && !o.Foreign && !o.Expires.IsZero() {
			objects[i].Expires = latest[o.Sandbox]
		}
	}
}
