package sweep

import (
	"context"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// Folders returns how the folders in dir are found, which are removed by calling remove.
func Folders(dir string, remove func(ctx context.Context, folder string) error) Find {
	return Local(func() ([]Object, error) {
		folders, err := owner.Folders(dir)
		objects := make([]Object, len(folders))
		for i, f := range folders {
			objects[i] = Folder(f, remove)
		}
		return objects, err
	})
}

// Local returns how objects are found whose times are by this machine's clock.
func Local(list func() ([]Object, error)) Find {
	return func(context.Context) ([]Object, Facts, error) {
		self, err := owner.Self()
		var objects []Object
		if err == nil {
			objects, err = list()
		}
		if err != nil {
			return nil, Facts{}, &fumehood.Error{Op: "clean up", Class: fumehood.ErrInfrastructure, Err: err}
		}
		now := time.Now()
		return objects, Facts{Owners: Judge(self, objects, nil, now), Now: now}, nil
	}
}
