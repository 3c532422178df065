package local

import (
	"context"

	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Cleaner = (*Provider)(nil)

// Cleanup removes the folders of dead owners, and those named in the options. It does not look for processes.
// Supervised processes of a dead owner have ended with it, and there is no record of others.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	return sweep.Removal{}.Run(ctx, opts, sweep.Folders(p.stateDir, within))
}
