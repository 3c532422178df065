package session

import (
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
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
	return sweep.Removal{}.Run(ctx, opts, sweep.Folders(dir, func(ctx context.Context, folder string) error {
		return opError(op, helperOf(provider, folder).remove(ctx))
	}))
}

// sweep removes what sessions of ended processes left in dir, and logs the results.
func (s *Session) sweep(ctx context.Context, dir string) {
	containers := s.opts.Provider
	if s.local() {
		containers = nil
	}
	plan, err := Cleanup(ctx, containers, dir, provider.CleanupOptions{})
	sweep.Log(ctx, s.log, plan, err)
}
