package imagestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood/internal/guest/archive"
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

// Keep makes Cleanup keep the image, also when it is closed, for as long as a folder exists. The folder is that of a
// sandbox that outlives this process.
func (i *Image) Keep(ctx context.Context, folder string) error {
	_, id, _ := strings.Cut(i.ID, ":")
	release, err := i.s.lock(ctx, storeLock, true)
	if err == nil {
		defer release()
		err = i.s.write(keptDir, id+"-"+digest([]byte(folder)).Hex[:16], []byte(folder))
	}
	return i.s.translate(ctx, "keep image "+i.Ref, err)
}

// maxFolder bounds the path of a folder, in bytes.
const maxFolder = 4096

// Cleanup removes all images that are not in use, the layers that no other image has, and what Sweep removes. An image
// is in use while a process has it open, or while it is kept for a folder. With dryRun nothing is removed. The results
// are complete even if there is an error.
func (s *Store) Cleanup(ctx context.Context, dryRun bool) ([]Removed, error) {
	c := &cleaner{s: s, dryRun: dryRun, used: map[string]bool{}, layers: map[string]bool{}, refs: map[string][]string{}}
	return c.clean(ctx, []step{
		{keptDir, c.checkKept}, {refsDir, c.ref}, {imagesDir, c.image}, {refsDir, c.danglingRef}, {layersDir, c.layer}, {unfinished, c.leftover},
	})
}

// Sweep removes what killed processes left unfinished. The results are complete even if there is an error.
func (s *Store) Sweep(ctx context.Context) ([]Removed, error) {
	c := &cleaner{s: s}
	return c.clean(ctx, []step{{unfinished, c.leftover}})
}

// step is a step of a cleanup: a folder of the store, and what is done with each entry.
type step struct {
	folder string
	visit  func(name string) error
}

// cleaner is the state of a cleanup.
type cleaner struct {
	s       *Store
	dryRun  bool
	gone    string              // the folder of what is removed; others find it locked
	used    map[string]bool     // images that are in use
	layers  map[string]bool     // layers of these images
	refs    map[string][]string // by image: its names
	removed []Removed
	paths   []string // of what is removed
}

// clean moves everything that is not needed into a folder, and removes that.
func (c *cleaner) clean(ctx context.Context, steps []step) ([]Removed, error) {
	name := "gone-" + rand.Text()
	c.gone = c.s.path(unfinished, name)
	err := c.s.withLock(layerLock+name, func() error {
		err := c.decide(ctx, steps)
		for n, path := range c.paths {
			if r := &c.removed[n]; r.Kind != KindImage {
				r.Size = size(path)
			}
		}
		return errors.Join(err, c.s.removeAll(ctx, c.gone))
	})
	return c.removed, c.s.translate(ctx, "clean up image store", err)
}

// decide moves what is not needed. All others wait meanwhile.
func (c *cleaner) decide(ctx context.Context, steps []step) error {
	release, err := c.s.lock(ctx, storeLock, false)
	if err != nil {
		return err
	}
	defer release()
	for _, step := range steps {
		entries, err := os.ReadDir(c.s.path(step.folder, ""))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := step.visit(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove moves a file or folder into the folder of what is removed, and reports it.
func (c *cleaner) remove(r Removed, path string) error {
	if !c.dryRun {
		aside := filepath.Join(c.gone, strconv.Itoa(len(c.paths)))
		if err := errors.Join(os.MkdirAll(c.gone, 0o700), os.Rename(path, aside)); err != nil {
			return err
		}
		path = aside
	}
	c.removed, c.paths = append(c.removed, r), append(c.paths, path)
	return nil
}

// unlink removes a small file that is not reported.
func (c *cleaner) unlink(path string) error {
	if c.dryRun {
		return nil
	}
	return os.Remove(path)
}

// checkKept looks whether the folder exists for which an image is kept.
func (c *cleaner) checkKept(name string) error {
	path := c.s.path(keptDir, name)
	folder, err := archive.ReadFile(path, maxFolder)
	if err == nil {
		_, err = os.Lstat(string(folder))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return c.unlink(path)
	}
	id, _, _ := strings.Cut(name, "-")
	c.used[id] = true
	return err
}

func (c *cleaner) ref(key string) error {
	rec, err := c.s.readRecord(key)
	if rec != nil {
		c.refs[rec.ID.Hex] = append(c.refs[rec.ID.Hex], rec.Ref)
	}
	return err
}

func (c *cleaner) image(hex string) error {
	free := false
	err := c.s.withLock(imageLock+hex, func() error { free = true; return nil }) // nobody can open it now
	if err != nil {
		return err
	}
	path := c.s.path(imagesDir, hex)
	if free && !c.used[hex] {
		slices.Sort(c.refs[hex])
		return c.remove(Removed{Kind: KindImage, ID: "sha256:" + hex, Refs: slices.Compact(c.refs[hex])}, path)
	}
	c.used[hex] = true
	content, err := archive.ReadFile(path, maxConfig)
	if err != nil {
		return err
	}
	if config, err := v1.ParseConfigFile(bytes.NewReader(content)); err == nil { // nobody can use a damaged one
		for _, layer := range config.RootFS.DiffIDs {
			c.layers[layer.Hex] = true
		}
	}
	return nil
}

func (c *cleaner) danglingRef(key string) error {
	if rec, err := c.s.readRecord(key); err != nil || rec != nil && c.used[rec.ID.Hex] {
		return err
	}
	return c.unlink(c.s.path(refsDir, key))
}

func (c *cleaner) layer(hex string) error {
	if c.layers[hex] {
		return nil
	}
	return c.remove(Removed{Kind: KindLayer, ID: "sha256:" + hex}, c.s.path(layersDir, hex))
}

// leftover removes what a killed process did not finish. The lock of a layer or cleanup that goes on is taken, and
// unfinished files are only there while the store is locked.
func (c *cleaner) leftover(name string) error {
	return c.s.withLock(layerLock+name, func() error {
		path := c.s.path(unfinished, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { // complete by now
			return nil
		}
		return c.remove(Removed{Kind: KindUnfinished, ID: name}, path)
	})
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
