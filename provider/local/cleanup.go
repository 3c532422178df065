package local

import (
	"context"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/sweep"
)

var _ lazaret.Cleaner = (*Provider)(nil)

// Cleanup removes the folders that dead owners left, and those that the options name. It looks for no
// processes: those of a dead owner have ended with it where they are supervised, and elsewhere nothing
// holds them.
func (p *Provider) Cleanup(ctx context.Context, opts lazaret.CleanupOptions) ([]lazaret.Leftover, error) {
	return sweep.Folders(ctx, p.stateDir, opts, within)
}
