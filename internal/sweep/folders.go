package sweep

import (
	"context"
	"errors"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/owner"
)

// Folders decides about each folder in dir, and removes those that are to go, in the way that remove does.
// When ctx has ended it begins with no other, which is an ErrCancelled.
func Folders(ctx context.Context, dir string, opts lazaret.CleanupOptions, remove func(ctx context.Context, folder string) error) ([]lazaret.Leftover, error) {
	failed := func(err error) ([]lazaret.Leftover, error) {
		return nil, &lazaret.Error{Op: "clean up", Class: lazaret.ErrInfrastructure, Err: err}
	}
	self, err := owner.Self()
	if err != nil {
		return failed(err)
	}
	folders, err := owner.Folders(dir)
	if err != nil {
		return failed(err)
	}
	objects := make([]Object, len(folders))
	for i, f := range folders {
		objects[i] = Folder(f)
	}
	plan, err := Plan(objects, opts, func(id owner.ID) owner.State { return owner.Judge(self, id) })
	if err != nil || opts.DryRun {
		return plan, err
	}
	var errs []error
	for i := range plan {
		if !plan[i].Remove {
			continue
		}
		if ctx.Err() != nil {
			errs = append(errs, &lazaret.Error{Op: "clean up", Class: lazaret.ErrCancelled, Err: context.Cause(ctx)})
			break
		}
		plan[i].Err = remove(ctx, plan[i].Name)
		plan[i].Removed = plan[i].Err == nil
		errs = append(errs, plan[i].Err)
	}
	return plan, errors.Join(errs...)
}
