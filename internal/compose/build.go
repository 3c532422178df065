package compose

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
)

// Dockerfile is the Dockerfile of a build.
type Dockerfile struct {
	image.Dockerfile
	Text string
	Path string // in the context's folder; empty if it is inline or outside of it
}

// ReadDockerfile reads the Dockerfile of s.Build. host is the builder's platform, such as "linux/amd64".
func (s Source) ReadDockerfile(host string) (d Dockerfile, err error) {
	if err := d.read(s.Build); err != nil {
		return d, err
	}
	if d.Dockerfile, err = image.Parse(d.Text, s.args(host)); err != nil {
		err = &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrFile, Err: err}
	}
	return d, err
}

func (d *Dockerfile) read(build *Build) (err error) {
	if build.Inline != "" {
		d.Text = build.Inline
		return nil
	}
	dockerfile := build.Dockerfile
	if !filepath.IsAbs(dockerfile) {
		dockerfile = filepath.Join(build.Context, dockerfile)
	}
	if rel, err := filepath.Rel(build.Context, dockerfile); err == nil && filepath.IsLocal(rel) {
		d.Path = filepath.ToSlash(rel)
		d.Text, err = image.ReadDockerfile(build.Context, rel)
		return err
	}
	d.Text, err = image.ReadDockerfile(filepath.Dir(dockerfile), filepath.Base(dockerfile))
	return err
}

// args returns the arguments of a build, including those that the builder predefines.
func (s Source) args(host string) map[string]string {
	target := s.Platform
	if target == "" {
		target = host
	}
	args := map[string]string{}
	for prefix, platform := range map[string]string{"BUILD": host, "TARGET": target} {
		system, rest, _ := strings.Cut(platform, "/")
		arch, variant, _ := strings.Cut(rest, "/")
		maps.Copy(args, map[string]string{prefix + "PLATFORM": platform, prefix + "OS": system, prefix + "ARCH": arch, prefix + "VARIANT": variant})
	}
	maps.Copy(args, s.Build.Args)
	return args
}

// BuildContext reads the folder of s.Build, if it has one.
func (s Source) BuildContext(ctx context.Context, d Dockerfile) (*image.Tree, error) {
	if s.Build.Context == "" {
		return image.Folder(""), nil
	}
	return image.Context(ctx, s.Build.Context, d.Path, image.Options{AnyLinks: true, Exclude: s.Exclude})
}

// SecretIDs returns the ids of the secrets of a build, sorted.
func (b *Build) SecretIDs() []string {
	var ids []string
	for _, s := range b.Secrets {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}
