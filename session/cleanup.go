package session

import (
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/sweep"
	"github.com/fumehood/fumehood/provider"
)

// Cleanup removes the folders of sessions whose process has ended without closing them, and those that
// opts names; dir is as in Options. The provider's own Cleanup does that for their containers, and is to be
// called first. What a container wrote, and this machine's user may not remove, a throwaway container of
// provider removes, of the image that the session ran; where provider is nil, it is an error.
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
