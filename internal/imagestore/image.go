package imagestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
)

// Image is an image of a Store, with all its layers unpacked. Cleanup does not remove it before it is closed.
type Image struct {
	ID     string    // "sha256:..." of its config
	Ref    string    // the reference as given
	Arch   string    // as in GOARCH
	Config v1.Config // how it is run: user, variables, working directory ...
	Layers []string  // absolute paths of the unpacked layers, the lowest first, without duplicates
	s      *Store
	once   sync.Once
	free   func()
}

// Close permits Cleanup to remove the image. It may be called more than once.
func (i *Image) Close() error {
	i.once.Do(i.free)
	return nil
}

// ErrMissing matches the error of Find for an image that the store does not have.
var ErrMissing = errors.New("the image store has no such image")

func errMissing() error {
	return &fumehood.Error{Class: fumehood.ErrConfig, Err: ErrMissing, Hint: "start a sandbox with it once where images may be fetched"}
}

// Find returns an image of the store. It reads files that the reference names, but never unpacks anything, and asks
// neither the Engine nor a registry. If the image or a layer is missing, the error matches ErrMissing and ErrConfig.
func (s *Store) Find(ctx context.Context, ref string) (*Image, error) {
	r, err := parse(ref)
	if err != nil {
		return nil, err
	}
	var img *Image
	switch r.source {
	case byID:
		img, err = s.hold(ctx, r, r.id)
	case anySource, dockerDaemon:
		img, err = s.named(ctx, r)
	default:
		var found *contents
		if found, err = s.files(ctx, r); err == nil {
			defer found.close()
			img, err = s.hold(ctx, r, found.id())
		}
	}
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
	r, err := parse(ref)
	if err != nil {
		return nil, err
	}
	var img *Image
	switch r.source {
	case byID:
		if img, err = s.hold(ctx, r, r.id); img == nil && err == nil {
			img, err = s.getNamed(ctx, r)
		}
	case anySource, dockerDaemon:
		img, err = s.getNamed(ctx, r)
	default:
		var found *contents
		if found, err = s.files(ctx, r); err == nil {
			defer found.close()
			img, err = s.load(ctx, r, found)
		}
	}
	return img, s.translate(ctx, "get image "+ref, err)
}

// named returns the image that a name has in the store, or nil.
func (s *Store) named(ctx context.Context, r reference) (*Image, error) {
	rec, err := s.readRecord(r.key())
	if err != nil || rec == nil {
		return nil, err
	}
	return s.hold(ctx, r, rec.ID)
}

// getNamed returns the image of a name.
func (s *Store) getNamed(ctx context.Context, r reference) (*Image, error) {
	if img, err := s.upToDate(ctx, r); img != nil || err != nil {
		return img, err
	}
	release, err := s.lock(ctx, refLock+r.key(), false)
	if err != nil {
		return nil, err
	}
	defer release()
	if img, err := s.upToDate(ctx, r); img != nil || err != nil { // another call may have fetched it
		return img, err
	}
	found, err := s.fetch(ctx, r)
	if err != nil {
		return nil, err
	}
	defer found.close()
	return s.add(ctx, r, found)
}

// add makes the store have an image under a name, whose lock the caller has, and returns it.
func (s *Store) add(ctx context.Context, r reference, found *contents) (*Image, error) {
	img, err := s.load(ctx, r, found)
	if err != nil {
		return nil, err
	}
	rec := record{Ref: r.full(), ID: found.id(), Engine: found.engine}
	if known, err := s.readRecord(r.key()); err != nil || known == nil || *known != rec {
		if err := s.writeRecord(ctx, r.key(), rec); err != nil {
			return nil, errors.Join(err, img.Close())
		}
	}
	s.compared.Store(r.key(), true)
	return img, nil
}

// upToDate returns the image that a name has in the store. It returns nil if the store has none, or not the one that
// the Engine has by now.
func (s *Store) upToDate(ctx context.Context, r reference) (*Image, error) {
	rec, err := s.readRecord(r.key())
	if err != nil || rec == nil {
		return nil, err
	}
	_, compared := s.compared.Load(r.key())
	if rec.Engine != "" && (!compared || r.source == dockerDaemon) {
		id, err := s.engineID(ctx, r)
		if err != nil {
			return nil, err
		}
		if id != "" && id != rec.Engine {
			return nil, nil
		}
		s.compared.Store(r.key(), true)
	}
	return s.hold(ctx, r, rec.ID)
}

// fetch finds the contents of a name outside of the store.
func (s *Store) fetch(ctx context.Context, r reference) (*contents, error) {
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

// hold returns the image with an id and prevents Cleanup from removing it. It returns nil if the store lacks the image
// or one of its layers.
func (s *Store) hold(ctx context.Context, r reference, id v1.Hash) (*Image, error) {
	free, err := s.lock(ctx, imageLock+id.Hex, true)
	if err != nil {
		return nil, err
	}
	img, err := s.held(ctx, r, id)
	if img == nil {
		free()
		return nil, err
	}
	img.free = free
	return img, nil
}

// held is hold for a caller that has the image's lock.
func (s *Store) held(ctx context.Context, r reference, id v1.Hash) (*Image, error) {
	config, err := readFile(s.path(imagesDir, id.Hex), maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if digest(config) != id {
		s.opts.Logger.Warn("the image store has a damaged image", "file", s.path(imagesDir, id.Hex))
		return nil, nil
	}
	parsed, err := parseConfig(config, s.opts.Arch)
	if err != nil {
		return nil, err
	}
	for _, layer := range distinct(parsed.RootFS.DiffIDs) {
		release, err := s.lock(ctx, layerLock+layer.Hex, true)
		if err != nil {
			return nil, err
		}
		ok, err := s.exists(layer)
		release()
		if err != nil || !ok {
			return nil, err
		}
	}
	return s.image(r, id, parsed), nil
}

func (s *Store) image(r reference, id v1.Hash, config *v1.ConfigFile) *Image {
	img := &Image{s: s, ID: id.String(), Ref: r.text, Arch: config.Architecture, Config: config.Config}
	for _, layer := range distinct(config.RootFS.DiffIDs) {
		img.Layers = append(img.Layers, s.path(layersDir, layer.Hex))
	}
	return img
}

// load makes the store have an image, and returns it.
func (s *Store) load(ctx context.Context, r reference, found *contents) (*Image, error) {
	config, err := parseConfig(found.config, s.opts.Arch)
	if err != nil {
		return nil, err
	}
	if len(config.RootFS.DiffIDs) != len(found.layers) {
		return nil, bad("the config names %d layers, the manifest %d", len(config.RootFS.DiffIDs), len(found.layers))
	}
	id := found.id()
	free, err := s.lock(ctx, imageLock+id.Hex, true)
	if err != nil {
		return nil, err
	}
	if err := s.loadHeld(ctx, r, config, found); err != nil {
		free()
		return nil, err
	}
	img := s.image(r, id, config)
	img.free = free
	return img, nil
}

// loadHeld is load for a caller that has the image's lock. The record comes before the layers: see the package.
func (s *Store) loadHeld(ctx context.Context, r reference, config *v1.ConfigFile, found *contents) error {
	known, err := readFile(s.path(imagesDir, found.id().Hex), maxConfig)
	if err != nil || !bytes.Equal(known, found.config) {
		if err := s.write(ctx, imagesDir, found.id().Hex, found.config); err != nil {
			return err
		}
	}
	budget := newBudget(s.limits)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelLayers)
	seen := map[v1.Hash]bool{}
	for n, layer := range config.RootFS.DiffIDs {
		if !seen[layer] {
			seen[layer] = true
			group.Go(func() error { return s.layer(ctx, r, layer, found.layers[n], budget) })
		}
	}
	return group.Wait()
}

// parallelLayers is how many layers of an image are fetched and unpacked at once. Docker's default is the same.
const parallelLayers = 3

// parseConfig parses an image's config and checks that it is for this platform.
func parseConfig(content []byte, arch string) (*v1.ConfigFile, error) {
	config, err := v1.ParseConfigFile(bytes.NewReader(content))
	if err != nil {
		return nil, bad("config: %w", err)
	}
	if config.OS != "linux" || config.Architecture != arch {
		return nil, wrongPlatform([]string{config.OS + "/" + config.Architecture}, arch)
	}
	if n := len(config.RootFS.DiffIDs); n > maxLayers {
		return nil, tooMany("layers", n, maxLayers)
	}
	for _, layer := range config.RootFS.DiffIDs {
		if layer.Algorithm != "sha256" {
			return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("layer with a digest by %s", layer.Algorithm)}
		}
	}
	return config, nil
}

// distinct removes duplicates of layers, which overlayfs rejects. The highest one remains, as it hides the others.
func distinct(layers []v1.Hash) []v1.Hash {
	var kept []v1.Hash
	for n, layer := range layers {
		if !slices.Contains(layers[n+1:], layer) {
			kept = append(kept, layer)
		}
	}
	return kept
}
