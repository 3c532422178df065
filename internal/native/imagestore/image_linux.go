package imagestore

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Image is an image of a Store, with all its layers unpacked. Cleanup does not remove it before it is closed.
type Image struct {
	ID     string    // "sha256:..." of its config
	Ref    string    // the reference as given
	Config v1.Config // how it is run: user, variables, working directory ...
	Layers []string  // absolute paths of the unpacked layers, the lowest first, without duplicates
	Pinned string    // of Pull: the name with a digest, by which the registry has the same image whatever tags move
	s      *Store
	free   func() // may be called more than once
}

// Close permits Cleanup to remove the image. It may be called more than once.
func (i *Image) Close() error {
	i.free()
	return nil
}

// ErrMissing matches the error of Find for an image that the store does not have.
var ErrMissing = errors.New("the image store has no such image")

func errMissing() error {
	return fail(fumehood.ErrConfig, "start a sandbox with it once where images may be fetched", "%w", ErrMissing)
}

// Find returns an image of the store. It reads files that the reference names, but never unpacks anything, and asks
// neither the Engine nor a registry. If the image or a layer is missing, the error matches ErrMissing and ErrConfig.
func (s *Store) Find(ctx context.Context, ref string) (*Image, error) {
	img, err := s.get(ctx, ref, anySource, false)
	if err == nil && img == nil {
		err = errMissing()
	}
	return img, s.translate(ctx, "find image "+ref, err)
}

// Get returns an image: from the store, or else from its source. It unpacks what is missing. Concurrent calls, also of
// other processes, fetch an image once.
//
// The source of a plain name is the local Docker Engine if it has the image, or else the registry. An image that came
// from the Engine is compared with the Engine's once per Store, and fetched again if it has changed. The image of a
// docker-daemon reference is compared at each call. An ID that the store does not have is looked up in the Engine.
func (s *Store) Get(ctx context.Context, ref string) (*Image, error) {
	img, err := s.get(ctx, ref, anySource, true)
	return img, s.translate(ctx, "get image "+ref, err)
}

// Pull is Get for the image that a name has in its registry, whatever the Engine or a file has under the name. Without
// fetch, it is Find.
func (s *Store) Pull(ctx context.Context, name string, fetch bool) (*Image, error) {
	img, err := s.get(ctx, name, fromRegistry, fetch)
	if err == nil && img == nil {
		err = errMissing()
	}
	return img, s.translate(ctx, "pull image "+name, err)
}

// get returns an image, or nil if the store lacks it and may not fetch it.
func (s *Store) get(ctx context.Context, ref string, from source, fetch bool) (*Image, error) {
	r, err := parse(ref)
	if err != nil {
		return nil, err
	}
	if from == fromRegistry {
		if r.source != anySource {
			return nil, badRef(ref, errors.New("not the name of an image in a registry"))
		}
		r.source = from
	}
	if r.path != "" {
		found, err := s.files(ctx, r)
		if err != nil {
			return nil, err
		}
		defer func() { _ = found.close() }()
		if fetch {
			return s.load(ctx, r, found)
		}
		return s.hold(ctx, r, found.id())
	}
	if r.source == byID {
		if img, err := s.hold(ctx, r, r.id); img != nil || err != nil {
			return img, err
		}
	}
	if img, err := s.lookupName(ctx, r, fetch); img != nil || err != nil || !fetch {
		return img, err
	}
	release, err := s.lock(ctx, refLock+r.key(), false)
	if err != nil {
		return nil, err
	}
	defer release()
	if img, err := s.lookupName(ctx, r, true); img != nil || err != nil { // another call may have fetched it
		return img, err
	}
	found, err := s.fetch(ctx, r)
	if err != nil {
		return nil, err
	}
	if found.close != nil {
		defer func() { _ = found.close() }()
	}
	return s.add(ctx, r, found)
}

// add makes the store have an image under a name, whose lock the caller has, and returns it.
func (s *Store) add(ctx context.Context, r reference, found *contents) (*Image, error) {
	img, err := s.load(ctx, r, found)
	if err != nil {
		return nil, err
	}
	if err := s.writeRecord(ctx, r.key(), record{Ref: r.full, ID: found.id(), Engine: found.engine, Pinned: found.pinned}); err != nil {
		return nil, errors.Join(err, img.Close())
	}
	s.compared.Store(r.key(), true)
	img.Pinned = found.pinned
	return img, nil
}

// lookupName returns the image that a name has in the store, or nil. With compare it also returns nil if it is not the one
// that the Engine has by now.
func (s *Store) lookupName(ctx context.Context, r reference, compare bool) (*Image, error) {
	rec, err := s.readRecord(r.key())
	if err != nil || rec == nil {
		return nil, err
	}
	_, compared := s.compared.Load(r.key())
	if compare && rec.Engine != "" && (!compared || r.source == dockerDaemon) {
		id, err := s.engineID(ctx, r)
		if err != nil {
			return nil, err
		}
		if id != "" && id != rec.Engine {
			return nil, nil
		}
		s.compared.Store(r.key(), true)
	}
	img, err := s.hold(ctx, r, rec.ID)
	if img != nil {
		img.Pinned = rec.Pinned
	}
	return img, err
}

// fetch finds the contents of a name outside of the store.
func (s *Store) fetch(ctx context.Context, r reference) (*contents, error) {
	if r.source == fromRegistry {
		return s.pull(ctx, r)
	}
	id, err := s.engineID(ctx, r)
	if err != nil {
		return nil, err
	}
	if id != "" {
		return s.export(ctx, r, id)
	}
	if r.source == byID {
		return nil, errMissing()
	}
	return s.pull(ctx, r)
}

// hold opens the image with an id. It returns nil if the store lacks the image or one of its layers.
func (s *Store) hold(ctx context.Context, r reference, id v1.Hash) (*Image, error) {
	release, err := s.lock(ctx, storeLock, true)
	if err != nil {
		return nil, err
	}
	defer release()
	content, err := archive.ReadFile(s.path(imagesDir, id.Hex), maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if digest(content) != id {
		s.opts.Logger.Warn("the image store has a damaged image", "file", s.path(imagesDir, id.Hex))
		return nil, nil
	}
	config, err := parseConfig(content)
	if err != nil {
		return nil, err
	}
	for _, layer := range config.RootFS.DiffIDs {
		if has, err := s.exists(layer); !has || err != nil {
			return nil, err
		}
	}
	return s.open(ctx, r, id, config)
}

// open takes the lock of an image, for a caller that has the store's.
func (s *Store) open(ctx context.Context, r reference, id v1.Hash, config *v1.ConfigFile) (*Image, error) {
	free, err := s.lock(ctx, imageLock+id.Hex, true)
	if err != nil {
		return nil, err
	}
	img := &Image{s: s, ID: id.String(), Ref: r.text, Config: config.Config, free: sync.OnceFunc(free)}
	for n, layer := range config.RootFS.DiffIDs {
		if !slices.Contains(config.RootFS.DiffIDs[n+1:], layer) { // overlayfs rejects duplicates; the highest hides the others
			img.Layers = append(img.Layers, s.path(layersDir, layer.Hex))
		}
	}
	return img, nil
}

// load makes the store have an image, and opens it.
func (s *Store) load(ctx context.Context, r reference, found *contents) (*Image, error) {
	config, err := parseConfig(found.config)
	if err != nil {
		return nil, err
	}
	layers := config.RootFS.DiffIDs
	if len(layers) != len(found.layers) {
		return nil, bad("the config names %d layers, the manifest %d", len(layers), len(found.layers))
	}
	img, err := s.record(ctx, r, config, found)
	if err != nil {
		return nil, err
	}
	budget := newBudget(s.limits)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelLayers)
	for n, layer := range layers {
		if slices.Index(layers, layer) == n {
			group.Go(func() error { return s.layer(ctx, r, layer, found.layers[n], budget) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, img.Close())
	}
	return img, nil
}

// record records an image, and opens it before it has its layers.
func (s *Store) record(ctx context.Context, r reference, config *v1.ConfigFile, found *contents) (*Image, error) {
	release, err := s.lock(ctx, storeLock, true)
	if err != nil {
		return nil, err
	}
	defer release()
	id := found.id()
	if known, err := archive.ReadFile(s.path(imagesDir, id.Hex), maxConfig); err != nil || !bytes.Equal(known, found.config) {
		if err := s.write(imagesDir, id.Hex, found.config); err != nil {
			return nil, err
		}
	}
	return s.open(ctx, r, id, config)
}

// parallelLayers is how many layers of an image are fetched and unpacked at once. Docker's default is the same.
const parallelLayers = 3

// parseConfig parses an image's config and checks that it is for this platform.
func parseConfig(content []byte) (*v1.ConfigFile, error) {
	config, err := v1.ParseConfigFile(bytes.NewReader(content))
	if err != nil {
		return nil, bad("config: %w", err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		return nil, wrongPlatform(config.OS + "/" + config.Architecture)
	}
	if n := len(config.RootFS.DiffIDs); n > maxLayers {
		return nil, tooMany("layers", n, maxLayers)
	}
	if n := len(config.Config.Volumes); n > maxVolumes {
		return nil, tooMany("volumes", n, maxVolumes)
	}
	for _, layer := range config.RootFS.DiffIDs {
		if layer.Algorithm != "sha256" {
			return nil, fail(fumehood.ErrUnsupported, "", "layer with a digest by %s", layer.Algorithm)
		}
	}
	return config, nil
}
