package imagestore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/platforms"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
)

// contents are the parts of an image at its source. Nothing in them is trusted.
type contents struct {
	config []byte
	layers []blob // the lowest first
	engine string // the image's id in the Engine; empty for other sources
	free   func()
}

// id returns the image's id, the digest of its config.
func (c *contents) id() v1.Hash { return digest(c.config) }

func (c *contents) close() {
	if c.free != nil {
		c.free()
	}
}

// blob is a layer at its source: a tar stream, plain or compressed.
type blob struct {
	open  func(ctx context.Context) (io.ReadCloser, error)
	size  int64 // of the stream at the source; 0 if unknown
	tries int   // how often it is read if the source fails; 0 means once
}

// blobs is a source of manifests, configs and layers by descriptor.
type blobs interface {
	manifest(ctx context.Context, d v1.Descriptor) ([]byte, error)
	config(ctx context.Context, d v1.Descriptor) ([]byte, error)
	layer(d v1.Descriptor) blob
}

// document is a manifest or an index.
type document struct {
	SchemaVersion int             `json:"schemaVersion"`
	Manifests     []v1.Descriptor `json:"manifests"`
	Config        v1.Descriptor   `json:"config"`
	Layers        []v1.Descriptor `json:"layers"`
}

// resolve reads the image of a manifest, or of the manifest that an index has for the architecture.
func resolve(ctx context.Context, from blobs, manifest []byte, arch string) (*contents, error) {
	for range maxDepth {
		var doc document
		if err := json.Unmarshal(manifest, &doc); err != nil {
			return nil, bad("manifest: %w", err)
		}
		if doc.SchemaVersion == 1 {
			return nil, &fumehood.Error{
				Class: fumehood.ErrUnsupported, Err: fmt.Errorf("image has a manifest of schema version 1, which Docker has dropped too"),
				Hint: "build and push the image again",
			}
		}
		if len(doc.Manifests) > 0 {
			d, err := choose(doc.Manifests, arch)
			if err != nil {
				return nil, err
			}
			if manifest, err = from.manifest(ctx, d); err != nil {
				return nil, err
			}
			continue
		}
		if doc.Config.Digest.Hex == "" {
			return nil, bad("manifest without a config")
		}
		if len(doc.Layers) > maxLayers {
			return nil, tooMany("layers", len(doc.Layers), maxLayers)
		}
		config, err := from.config(ctx, doc.Config)
		if err != nil {
			return nil, err
		}
		found := &contents{config: config}
		for _, d := range doc.Layers {
			found.layers = append(found.layers, from.layer(d))
		}
		return found, nil
	}
	return nil, bad("indexes nested deeper than %d", maxDepth)
}

// choose returns the manifest for an architecture. A manifest without a platform is for any.
func choose(manifests []v1.Descriptor, arch string) (v1.Descriptor, error) {
	match := platforms.OnlyStrict(platforms.Platform{OS: "linux", Architecture: arch})
	var has []string
	for _, d := range manifests {
		if d.Platform == nil {
			continue
		}
		p := platforms.Platform{OS: d.Platform.OS, Architecture: d.Platform.Architecture, Variant: d.Platform.Variant}
		if match.Match(p) {
			return d, nil
		}
		if p.OS != "unknown" && len(has) < 20 { // attestations are for unknown/unknown
			has = append(has, platforms.Format(p))
		}
	}
	var plain []v1.Descriptor
	for _, d := range manifests {
		if d.Platform == nil {
			plain = append(plain, d)
		}
	}
	switch {
	case len(plain) == 1:
		return plain[0], nil
	case len(plain) > 1:
		return v1.Descriptor{}, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("%d images there", len(plain)), Hint: "name one of them: PATH:TAG",
		}
	}
	return v1.Descriptor{}, wrongPlatform(has, arch)
}

// verified reads a document and checks its digest.
func verified(r io.Reader, d v1.Descriptor, limit int64) ([]byte, error) {
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
