package image

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// ReadDockerfile reads the Dockerfile of s.Build. host is the builder's platform, such as "linux/amd64".
func (s Source) ReadDockerfile(host string) (Dockerfile, error) {
	text, path, err := s.Build.DockerfileText()
	if err != nil {
		return Dockerfile{}, err
	}
	d, err := Parse(text, s.args(host))
	if err != nil {
		return Dockerfile{}, &fumehood.Error{Op: "read", Path: s.Build.Dockerfile, Class: fumehood.ErrFile, Err: err}
	}
	d.Path = path
	return d, nil
}

// DockerfileText returns the text of the Dockerfile and its path in the context's folder, as in Dockerfile.
func (b *Build) DockerfileText() (text, path string, err error) {
	if b.Inline != "" {
		return b.Inline, "", nil
	}
	file := b.Dockerfile
	if !filepath.IsAbs(file) {
		file = filepath.Join(b.Context, file)
	}
	if rel, err := filepath.Rel(b.Context, file); err == nil && filepath.IsLocal(rel) {
		text, err := ReadDockerfile(b.Context, rel)
		return text, filepath.ToSlash(rel), err
	}
	text, err = ReadDockerfile(filepath.Dir(file), filepath.Base(file))
	return text, "", err
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
func (s Source) BuildContext(ctx context.Context, d Dockerfile) (*Tree, error) {
	if s.Build.Context == "" {
		return Folder(""), nil
	}
	return Context(ctx, s.Build.Context, d.Path, Options{AnyLinks: true, Exclude: s.Exclude})
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

// names returns the project's names for the built image of s, as Tag does.
func (s Source) names() (names []string, err error) {
	for _, name := range append([]string{s.Image}, s.Build.Tags...) {
		if name == "" {
			continue
		}
		tag, err := Tag(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, tag) {
			names = append(names, tag)
		}
	}
	return names, nil
}

// IsBuilt reports whether the image of s is one that the project of these sources builds, or a built-in one.
func (s Source) IsBuilt(sources []Source) bool {
	return s.Build != nil || strings.HasPrefix(Familiar(s.Image), BuiltinPrefix) || slices.ContainsFunc(sources, func(other Source) bool {
		if other.Build == nil {
			return false
		}
		names, _ := other.names() // the build reports the error
		return slices.Contains(names, Familiar(s.Image))
	})
}
