// Package testimages gives tests the images that scripts/test-images has made, without a Docker Engine.
package testimages

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/test/tier"
)

// Dir returns the folder that scripts/test-images writes to.
func Dir() string {
	cache, _ := os.UserCacheDir() // without a home there are no images
	return filepath.Join(cache, "fumehood-test")
}

// Archive returns the file with an image, such as fumehood-test/busybox. Without the file the test skips, or fails if
// FUMEHOOD_TIER is set.
func Archive(t testing.TB, image string) string {
	t.Helper()
	file := filepath.Join(Dir(), path.Base(image)+".tar")
	if _, err := os.Stat(file); err != nil {
		tier.Missing(t, tier.Quick, fmt.Errorf("no test images: `make archives` makes them: %w", err))
	}
	return file
}

// Load loads images into a provider that has images of its own.
func Load(t testing.TB, p provider.ImageLoader, images ...string) {
	t.Helper()
	for _, image := range images {
		if _, err := p.LoadImages(t.Context(), Archive(t, image)); err != nil {
			t.Fatal(err)
		}
	}
}
