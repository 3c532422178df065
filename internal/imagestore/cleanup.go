package imagestore

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Kind is what Cleanup removed.
type Kind string

// The kinds of what Cleanup removes.
const (
	KindImage      Kind = "image"      // an image's record, with all its references
	KindLayer      Kind = "layer"      // an unpacked layer
	KindUnfinished Kind = "unfinished" // what a killed process left
)

// Removed is one thing that Cleanup removed, or would remove.
type Removed struct {
	Kind Kind
	ID   string   // the digest of an image or layer, or the name of what is unfinished
	Refs []string // of an image: its names, sorted
	Size int64    // of anything else: bytes in its regular files
}

// Cleanup removes all images that are not in use, the layers that no other image has, and what killed processes left.
// An image is in use while a process has it open, or while it is kept for a folder. With dryRun nothing is removed. The
// results are complete even if there is an error.
func (s *Store) Cleanup(ctx context.Context, dryRun bool) ([]Removed, error) {
	c := &cleaner{s: s, dryRun: dryRun, layers: map[string][]string{}, gone: map[string]bool{}}
	for _, step := range []func(context.Context) error{c.images, c.refs, c.unusedLayers(layersDir), c.unusedLayers(oldLayers), c.leftovers, c.locks} {
		if err := step(ctx); err != nil {
			return c.removed, s.translate(ctx, "clean up image store", err)
		}
	}
	return c.removed, nil
}

// cleaner is the state of a cleanup.
type cleaner struct {
	s       *Store
	dryRun  bool
	layers  map[string][]string // of the images read so far
	gone    map[string]bool     // images that are removed, also in a dry run
	removed []Removed
}

// each calls f for the names in a folder of the store until the context ends.
func (c *cleaner) each(ctx context.Context, folder string, f func(name string) error) error {
	entries, err := os.ReadDir(c.s.path(folder, ""))
	if errors.Is(err, fs.ErrNotExist) { // there is no oldLayers
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// locked calls f with an exclusive lock. It does not call f if others have the lock.
func (c *cleaner) locked(name string, f func() error) error {
	l, err := c.s.tryLock(name)
	if l == nil {
		return err
	}
	return errors.Join(f(), l.Unlock())
}

// images removes the images that are not in use.
func (c *cleaner) images(ctx context.Context) error {
	names := map[string][]string{}
	err := c.each(ctx, refsDir, func(key string) error {
		rec, err := c.s.readRecord(key)
		if err != nil || rec == nil {
			return err
		}
		names[rec.ID.Hex] = append(names[rec.ID.Hex], rec.Ref)
		return nil
	})
	if err != nil {
		return err
	}
	return c.each(ctx, imagesDir, func(hex string) error {
		return c.locked(imageLock+hex, func() error {
			if kept, err := c.kept(ctx, hex); kept || err != nil {
				return err
			}
			slices.Sort(names[hex])
			c.gone[hex] = true
			c.removed = append(c.removed, Removed{Kind: KindImage, ID: "sha256:" + hex, Refs: slices.Compact(names[hex])})
			if c.dryRun {
				return nil
			}
			return remove(c.s.path(imagesDir, hex))
		})
	})
}

// refs removes references to images that the store no longer has.
func (c *cleaner) refs(ctx context.Context) error {
	if c.dryRun {
		return nil
	}
	return c.each(ctx, refsDir, func(key string) error {
		return c.locked(refLock+key, func() error {
			rec, err := c.s.readRecord(key)
			if err != nil {
				return err
			}
			if rec != nil {
				if _, err := os.Lstat(c.s.path(imagesDir, rec.ID.Hex)); !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			return remove(c.s.path(refsDir, key))
		})
	})
}

// unusedLayers removes the layers in a folder that no image has.
func (c *cleaner) unusedLayers(folder string) func(context.Context) error {
	remove := func(hex string) error {
		return c.locked(layerLock+hex, func() error {
			if used, err := c.used(hex); used || err != nil {
				return err
			}
			dir := c.s.path(folder, hex)
			c.removed = append(c.removed, Removed{Kind: KindLayer, ID: "sha256:" + hex, Size: size(dir)})
			if c.dryRun {
				return nil
			}
			aside := c.s.path(unfinished, hex) // so that nobody finds half a layer
			return errors.Join(os.RemoveAll(aside), os.Rename(dir, aside), os.RemoveAll(aside))
		})
	}
	return func(ctx context.Context) error { return c.each(ctx, folder, remove) }
}

// used reports whether an image has a layer, whose lock the caller has. Images are recorded before their layers are
// looked for.
func (c *cleaner) used(layer string) (bool, error) {
	entries, err := os.ReadDir(c.s.path(imagesDir, ""))
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		id := e.Name()
		if c.gone[id] && c.dryRun {
			continue
		}
		layers, known := c.layers[id]
		if !known { // an id always has the same layers
			content, err := readFile(c.s.path(imagesDir, id), maxConfig)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return false, err
			}
			config, err := v1.ParseConfigFile(bytes.NewReader(content))
			if err != nil {
				continue // damaged: nobody can use it
			}
			for _, diff := range config.RootFS.DiffIDs {
				layers = append(layers, diff.Hex)
			}
			c.layers[id] = layers
		}
		if slices.Contains(layers, layer) {
			return true, nil
		}
	}
	return false, nil
}

// leftovers removes what killed processes did not finish.
func (c *cleaner) leftovers(ctx context.Context) error {
	return c.each(ctx, unfinished, func(name string) error {
		lock := layerLock + name
		if name == unfinishedFile {
			lock = fileLock + name
		}
		return c.locked(lock, func() error {
			path := c.s.path(unfinished, name)
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			c.removed = append(c.removed, Removed{Kind: KindUnfinished, ID: name, Size: size(path)})
			if c.dryRun {
				return nil
			}
			return os.RemoveAll(path)
		})
	})
}

// locks removes the files of locks for what the store does not have.
func (c *cleaner) locks(ctx context.Context) error {
	if c.dryRun {
		return nil
	}
	folders := map[string]string{refLock: refsDir, layerLock: layersDir, imageLock: imagesDir, fileLock: unfinished}
	return c.each(ctx, locksDir, func(name string) error {
		kind, object, _ := strings.Cut(name, "-")
		folder, ok := folders[kind+"-"]
		if !ok {
			return nil
		}
		l, err := c.s.tryLock(name)
		if l == nil {
			return err
		}
		if _, err := os.Lstat(c.s.path(folder, object)); errors.Is(err, fs.ErrNotExist) {
			return discard(l)
		}
		return l.Unlock()
	})
}

// remove removes a file that may be missing.
func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// size returns the bytes in all regular files of a tree, which may change meanwhile.
func size(root string) (n int64) {
	_ = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
