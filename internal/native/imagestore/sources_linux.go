package imagestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/registry"
)

// contents are the parts of an image at its source. Nothing in them is trusted.
type contents struct {
	config []byte
	layers []blob       // the lowest first
	engine string       // the image's id in the Engine; empty for other sources
	pinned string       // the name in the registry with the digest; empty for other sources
	close  func() error // nothing was written
}

// id returns the image's id, the digest of its config.
func (c *contents) id() v1.Hash { return digest(c.config) }

// blob is a layer at its source: a tar stream, plain or compressed.
type blob struct {
	open  func(ctx context.Context) (io.ReadCloser, error)
	size  int64 // of the stream at the source; 0 if unknown
	tries int   // how often it is read if the source fails; 0 means once
}

// candidate is an image at a source that has several.
type candidate struct {
	names    []string // with registry or tag
	tag      string
	platform *v1.Platform // nil means any
	read     func(ctx context.Context) (*contents, error)
}

// maxConfigs is how many configs of an index are read to find the image for this architecture.
const maxConfigs = 100

// byConfig returns the images for this architecture of an index that names no platforms, and the platforms of the others.
// Images that cannot be read are left out: an index may name images that are not there. The error is that of the first.
func byConfig(ctx context.Context, all []candidate) (match []candidate, others []string, err error) {
	for _, c := range all[:min(len(all), maxConfigs)] {
		found, rerr := c.read(ctx)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		var config *v1.ConfigFile
		if rerr == nil {
			config, rerr = v1.ParseConfigFile(bytes.NewReader(found.config))
		}
		switch {
		case rerr != nil:
			err = cmp.Or(err, rerr)
		case config.OS == "linux" && config.Architecture == runtime.GOARCH:
			match = append(match, c)
		case len(others) < 20:
			others = append(others, config.OS+"/"+config.Architecture)
		}
	}
	return match, others, err
}

// sameNames reports whether all images have the same names, so that a name cannot choose one.
func sameNames(all []candidate) bool {
	for _, c := range all[1:] {
		if c.tag != all[0].tag || !slices.Equal(c.names, all[0].names) {
			return false
		}
	}
	return true
}

// choose returns the image for this architecture.
func choose(ctx context.Context, all []candidate) (candidate, error) {
	match := platforms.OnlyStrict(platforms.Platform{OS: "linux", Architecture: runtime.GOARCH})
	var others []string
	var plain []candidate
	for _, c := range all {
		if c.platform == nil || c.platform.OS == "" && c.platform.Architecture == "" {
			plain = append(plain, c)
			continue
		}
		p := platforms.Platform{OS: c.platform.OS, Architecture: c.platform.Architecture, Variant: c.platform.Variant}
		if match.Match(p) {
			return c, nil
		}
		if p.OS != "unknown" && len(others) < 20 { // attestations are for unknown/unknown
			others = append(others, platforms.Format(p))
		}
	}
	if len(plain) > 1 && sameNames(plain) {
		match, found, err := byConfig(ctx, plain)
		if len(match) == 0 && err != nil {
			return candidate{}, err
		}
		if len(match) < 2 {
			plain, others = match, append(others, found...)
		}
	}
	switch {
	case len(plain) == 1:
		return plain[0], nil
	case len(plain) > 1:
		return candidate{}, fail(fumehood.ErrConfig, "name one of them: PATH:NAME:TAG", "%d images there", len(plain))
	case len(others) == 0:
		return candidate{}, bad("index without an image")
	}
	return candidate{}, wrongPlatform(others...)
}

// blobs is a source of manifests, configs and layers by descriptor.
type blobs struct {
	manifest func(ctx context.Context, d v1.Descriptor) ([]byte, error)
	open     func(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
	tries    int // for each layer
}

// document is a manifest or an index.
type document struct {
	SchemaVersion int             `json:"schemaVersion"`
	Manifests     []v1.Descriptor `json:"manifests"`
	Config        v1.Descriptor   `json:"config"`
	Layers        []v1.Descriptor `json:"layers"`
}

// resolve reads the image of a manifest, or of the manifest that an index has for this architecture. depth is the number
// of indexes that led to it.
func (b blobs) resolve(ctx context.Context, manifest []byte, depth int) (*contents, error) {
	var doc document
	if err := json.Unmarshal(manifest, &doc); err != nil {
		return nil, bad("manifest: %w", err)
	}
	switch {
	case depth == maxDepth:
		return nil, bad("indexes nested deeper than %d", maxDepth)
	case doc.SchemaVersion == 1:
		return nil, fail(fumehood.ErrUnsupported, "build and push the image again", "image has a manifest of schema version 1, which Docker has dropped too")
	case len(doc.Manifests) > 0:
		c, err := choose(ctx, b.images(doc.Manifests, depth))
		if err != nil {
			return nil, err
		}
		return c.read(ctx)
	case doc.Config.Digest.Hex == "":
		return nil, bad("manifest without a config")
	case len(doc.Layers) > maxLayers:
		return nil, tooMany("layers", len(doc.Layers), maxLayers)
	}
	config, err := b.read(ctx, doc.Config, maxConfig)
	if err != nil {
		return nil, err
	}
	found := &contents{config: config}
	for _, d := range doc.Layers {
		open := func(ctx context.Context) (io.ReadCloser, error) { return b.open(ctx, d) }
		found.layers = append(found.layers, blob{open, d.Size, b.tries})
	}
	return found, nil
}

// Annotations with the name of an image.
const (
	fullName = "io.containerd.image.name"          // with registry and tag
	refName  = "org.opencontainers.image.ref.name" // a name, or only a tag
)

// images returns the images of an index.
func (b blobs) images(manifests []v1.Descriptor, depth int) []candidate {
	var all []candidate
	for _, d := range manifests {
		c := candidate{tag: d.Annotations[refName], platform: d.Platform}
		if as := cmp.Or(d.Annotations[fullName], c.tag); strings.ContainsAny(as, "/:") {
			c.names = []string{as}
		}
		c.read = func(ctx context.Context) (*contents, error) {
			manifest, err := b.manifest(ctx, d)
			if err != nil {
				return nil, err
			}
			return b.resolve(ctx, manifest, depth+1)
		}
		all = append(all, c)
	}
	return all
}

// read reads a document and checks its digest.
func (b blobs) read(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	r, err := b.open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := readAll(r, d.Digest.String(), limit)
	if err != nil {
		return nil, err
	}
	hash, err := v1.Hasher(d.Digest.Algorithm)
	if err != nil {
		return nil, bad("%w", err)
	}
	hash.Write(content)
	if got := fmt.Sprintf("%x", hash.Sum(nil)); got != d.Digest.Hex {
		return nil, bad("content of %s has the digest %s", d.Digest, got)
	}
	return content, nil
}

// reserved is the prefix of the names of Fumehood's built-in images. Anyone could push such a name to a registry.
const reserved = "fumehood-builtin/"

// layerTries is how often a layer is fetched if its connection breaks.
const layerTries = 3

// pull finds an image in its registry, with the user's credentials.
func (s *Store) pull(ctx context.Context, r reference) (_ *contents, err error) {
	repo := r.name.Context()
	if repo.RegistryStr() == name.DefaultRegistry && strings.HasPrefix(repo.RepositoryStr(), reserved) {
		return nil, fail(fumehood.ErrConfig, "build it with the docker provider, or use another image", "no registry has the built-in image %s", r.text)
	}
	defer func() { err = registry.Failure(ctx, repo.RegistryStr(), err) }()
	puller, err := remote.NewPuller(registry.Access{Keychain: s.keychain, Retries: s.retries, Patience: s.patience}.Options()...)
	if err != nil {
		return nil, err
	}
	get := func(ctx context.Context, ref name.Reference) (*remote.Descriptor, error) {
		found, err := puller.Get(ctx, ref) // checks the digest, if ref has one
		if err != nil {
			return nil, err
		}
		if len(found.Manifest) > maxManifest {
			return nil, tooLarge("its manifest has", maxManifest)
		}
		return found, nil
	}
	from := blobs{tries: layerTries}
	from.manifest = func(ctx context.Context, d v1.Descriptor) ([]byte, error) {
		found, err := get(ctx, repo.Digest(d.Digest.String()))
		if err != nil {
			return nil, err
		}
		return found.Manifest, nil
	}
	from.open = func(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
		layer, err := puller.Layer(ctx, repo.Digest(d.Digest.String()))
		if err != nil {
			return nil, registry.Failure(ctx, repo.RegistryStr(), err)
		}
		content, err := layer.Compressed()
		return content, registry.Failure(ctx, repo.RegistryStr(), err)
	}
	top, err := get(ctx, r.name)
	if err != nil {
		return nil, err
	}
	found, err := from.resolve(ctx, top.Manifest, 0)
	if err != nil {
		return nil, err
	}
	found.pinned = repo.Digest(top.Digest.String()).String()
	return found, nil
}
