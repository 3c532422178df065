package sweep

import (
	"context"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// Folders decides about each folder in dir and removes those that are to be removed, by calling remove. When ctx ends,
// it starts no further removals and returns an ErrCanceled.
func Folders(ctx context.Context, dir string, opts provider.CleanupOptions, remove func(ctx context.Context, folder string) error) ([]provider.Leftover, error) {
	failed := func(err error) ([]provider.Leftover, error) {
		return nil, &fumehood.Error{Op: "clean up", Class: fumehood.ErrInfrastructure, Err: err}
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
		objects[i] = Folder(f, remove)
	}
	now := time.Now() // folders have no times of their own, so the clock does not matter
	plan, err := Plan(objects, Facts{Owners: Judge(self, objects, nil, now), Now: now}, opts)
	if err != nil || opts.DryRun {
		return plan, err
	}
	return plan, Removal{}.Carry(ctx, objects, plan)
}
