package session

import (
	"context"
	"errors"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/owner"
	"github.com/lazaret/lazaret/internal/sweep"
)

// Cleanup removes the folders of sessions whose process has ended without closing them, and those that
// opts names; dir is as in Options. The provider's own Cleanup does that for their containers, and is to be
// called first. A workspace in which a container left what this machine's user may not remove is an error.
func Cleanup(ctx context.Context, dir string, opts lazaret.CleanupOptions) ([]lazaret.Leftover, error) {
	const op = "clean up sessions"
	var err error
	if dir == "" {
		if dir, err = owner.StateDir("session"); err != nil {
			return nil, &lazaret.Error{Op: op, Class: lazaret.ErrConfig, Err: err}
		}
	}
	self, err := owner.Self()
	if err != nil {
		return nil, failed(op, err)
	}
	folders, err := owner.Folders(dir)
	if err != nil {
		return nil, failed(op, err)
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
		if !plan[i].Remove || ctx.Err() != nil {
			continue
		}
		plan[i].Err = failed(op, removeOwn(plan[i].Name))
		plan[i].Removed = plan[i].Err == nil
		errs = append(errs, plan[i].Err)
	}
	return plan, errors.Join(append(errs, failed(op, context.Cause(ctx)))...)
}
