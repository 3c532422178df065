package session

import (
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/sweep"
	"github.com/fumehood/fumehood/provider"
)

// Cleanup removes the folders of sessions whose process ended without closing them, and of the sessions that opts
// names. Dir is as in Options. Call the provider's own Cleanup first: it removes the containers of these
// sessions. Files that a container wrote and that this machine's user may not remove are removed by a throwaway
// container of the image that the session ran. If provider is nil, such files are an error.
func Cleanup(ctx context.Context, provider fumehood.Provider, dir string, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	const op = "clean up sessions"
	if dir == "" {
		var err error
		if dir, err = owner.StateDir("session"); err != nil {
			return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
		}
	}
	return sweep.Folders(ctx, dir, opts, func(ctx context.Context, folder string) error {
		return failed(op, helperOf(provider, folder).remove(ctx))
	})
}
