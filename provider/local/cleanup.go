package local

import (
	"context"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/sweep"
)

var _ fumehood.Cleaner = (*Provider)(nil)

// Cleanup removes the folders that dead owners left, and those that the options name. It looks for no
// processes: those of a dead owner have ended with it where they are supervised, and elsewhere nothing
// holds them.
func (p *Provider) Cleanup(ctx context.Context, opts fumehood.CleanupOptions) ([]fumehood.Leftover, error) {
	return sweep.Folders(ctx, p.stateDir, opts, within)
}
