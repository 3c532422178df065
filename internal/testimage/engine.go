package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
)

// errNoImage says that the engine does not have an image of that name.
var errNoImage = errors.New("no such image")

// engine is what this program wants of a Docker Engine.
type engine interface {
	// arch is the engine's architecture in Go's words.
	arch(ctx context.Context) (string, error)
	// inspect returns the image's ID and labels, or errNoImage.
	inspect(ctx context.Context, ref string) (id string, labels map[string]string, err error)
	// offered asks the registry whether it has ref.
	offered(ctx context.Context, ref string) error
	// load makes an image of a tar stream.
	load(ctx context.Context, ref string, content tree, changes []string) error
	// build makes an image from a Dockerfile that needs no context.
	build(ctx context.Context, ref, dockerfile string) error
	// discard removes an image which lost its name, unless something uses it.
	discard(ctx context.Context, id string)
	close()
}

// connect returns the engine that the environment names.
func connect() (engine, error) {
	c, err := client.New(client.FromEnv)
	if err != nil {
		return nil, err
	}
	return mobyEngine{c}, nil
}

type mobyEngine struct{ c *client.Client }

func (e mobyEngine) close() { _ = e.c.Close() }

func (e mobyEngine) arch(ctx context.Context) (string, error) {
	v, err := e.c.ServerVersion(ctx, client.ServerVersionOptions{})
	return v.Arch, err
}

func (e mobyEngine) inspect(ctx context.Context, ref string) (string, map[string]string, error) {
	r, err := e.c.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return "", nil, errNoImage
	}
	if err != nil {
		return "", nil, err
	}
	if r.Config == nil {
		return r.ID, nil, nil
	}
	return r.ID, r.Config.Labels, nil
}

func (e mobyEngine) offered(ctx context.Context, ref string) error {
	_, err := e.c.DistributionInspect(ctx, ref, client.DistributionInspectOptions{})
	return err
}

func (e mobyEngine) load(ctx context.Context, ref string, content tree, changes []string) error {
	r, err := e.c.ImageImport(ctx, client.ImageImportSource{Source: content, SourceName: "-"}, ref,
		client.ImageImportOptions{Tag: "latest", Changes: changes})
	if err != nil {
		return err
	}
	return drain(r)
}

func (e mobyEngine) build(ctx context.Context, ref, dockerfile string) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))}); err != nil {
		return err
	}
	if _, err := io.WriteString(w, dockerfile); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	r, err := e.c.ImageBuild(ctx, &b, client.ImageBuildOptions{Tags: []string{ref}, Remove: true, ForceRemove: true})
	if err != nil {
		return err
	}
	return drain(r.Body)
}

func (e mobyEngine) discard(ctx context.Context, id string) {
	_, _ = e.c.ImageRemove(ctx, id, client.ImageRemoveOptions{PruneChildren: true})
}

// drain reads the engine's progress messages to their end and returns the error among them, with what
// the engine last printed.
func drain(r io.ReadCloser) error {
	defer func() { _ = r.Close() }()
	var last string
	d := json.NewDecoder(r)
	for {
		var m jsonstream.Message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the engine's answer: %w", err)
		}
		if m.Error != nil {
			return fmt.Errorf("%w%s", m.Error, last)
		}
		if m.Stream != "" {
			last = "; it printed last: " + m.Stream
		}
	}
}
