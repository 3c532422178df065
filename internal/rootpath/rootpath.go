// Package rootpath finds the paths in a sandbox at which root can work by name: no program of another user can change to
// what they lead.
package rootpath

import (
	"context"
	"path"

	"github.com/fumehood/fumehood"
)

// Fixed reports whether only root can change to what an absolute path leads: it and the folders above it belong to root, no
// one else may write there, and none is a link.
func Fixed(ctx context.Context, svc fumehood.Service, folder string) bool {
	info, err := svc.Stat(ctx, folder)
	if err != nil || !info.Mode.IsDir() || info.UID != 0 || info.Mode.Perm()&0o022 != 0 {
		return false
	}
	return folder == "/" || Fixed(ctx, svc, path.Dir(folder))
}
