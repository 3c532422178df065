package local

import (
	"context"

	"github.com/fumehood/fumehood/internal/sweep"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.Cleaner = (*Provider)(nil)

// Cleanup removes the folders that dead owners left, and those that the options name. It looks for no
// processes: those of a dead owner have ended with it where they are supervised, and elsewhere nothing
// holds them.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	return sweep.Folders(ctx, p.stateDir, opts, within)
}
