package imagestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Keep makes Cleanup keep the image, also when it is closed, for as long as a folder exists. The folder is that of a
// sandbox that outlives this process.
func (i *Image) Keep(ctx context.Context, folder string) error {
	_, id, _ := strings.Cut(i.ID, ":")
	sum := sha256.Sum256([]byte(folder))
	return i.s.translate(ctx, "keep image "+i.Ref, i.s.write(ctx, keptDir, id+"-"+hex.EncodeToString(sum[:8]), []byte(folder)))
}

// maxFolder bounds the path of a folder, in bytes.
const maxFolder = 4096

// kept reports whether a folder exists for which the image with an id is kept. The caller has the image's lock, so that
// no process keeps it meanwhile.
func (c *cleaner) kept(ctx context.Context, id string) (kept bool, err error) {
	err = c.each(ctx, keptDir, func(name string) error {
		if of, _, _ := strings.Cut(name, "-"); of != id {
			return nil
		}
		folder, err := readFile(c.s.path(keptDir, name), maxFolder)
		if err == nil {
			_, err = os.Lstat(string(folder))
		}
		switch {
		case err == nil:
			kept = true
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case !c.dryRun:
			return remove(c.s.path(keptDir, name))
		}
		return nil
	})
	return kept, err
}
