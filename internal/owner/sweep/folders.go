package sweep

import (
	"context"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// Folders returns how the folders in dir are found, which are removed by calling remove.
func Folders(dir string, remove func(ctx context.Context, folder string) error) Find {
	return func(context.Context) ([]Object, Facts, error) {
		self, err := owner.Self()
		var folders []owner.Folder
		if err == nil {
			folders, err = owner.Folders(dir)
		}
		if err != nil {
			return nil, Facts{}, &fumehood.Error{Op: "clean up", Class: fumehood.ErrInfrastructure, Err: err}
		}
		objects := make([]Object, len(folders))
		for i, f := range folders {
			objects[i] = Folder(f, remove)
		}
		now := time.Now() // folders have no times of their own, so the clock does not matter
		return objects, Facts{Owners: Judge(self, objects, nil, now), Now: now}, nil
	}
}
