package local

import (
	"context"
	"errors"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/owner"
	"github.com/lazaret/lazaret/internal/sweep"
)

var _ lazaret.Cleaner = (*Provider)(nil)

// Cleanup removes the folders that dead owners left, and those that the options name. It looks for no
// processes: those of a dead owner have ended with it where they are supervised, and elsewhere nothing
// holds them.
func (p *Provider) Cleanup(ctx context.Context, opts lazaret.CleanupOptions) ([]lazaret.Leftover, error) {
	self, err := owner.Self()
	if err != nil {
		return nil, &lazaret.Error{Op: "clean up", Class: lazaret.ErrInfrastructure, Err: err}
	}
	folders, err := owner.Folders(p.stateDir)
	if err != nil {
		return nil, &lazaret.Error{Op: "clean up", Class: lazaret.ErrInfrastructure, Err: err}
	}
	objects := make([]sweep.Object, len(folders))
	for i, f := range folders {
		objects[i] = sweep.Folder(f)
	}
	plan, err := sweep.Plan(objects, opts, func(id owner.ID) owner.State { return owner.Judge(self, id) })
	if err != nil || opts.DryRun {
		return plan, err
	}
	var errs []error
	for i := range plan {
		if !plan[i].Remove {
			continue
		}
		plan[i].Err = within(ctx, plan[i].Name)
		plan[i].Removed = plan[i].Err == nil
		errs = append(errs, plan[i].Err)
	}
	return plan, errors.Join(errs...)
}
