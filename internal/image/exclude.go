package image

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// below returns the paths, relative to a context's folder, of the excluded files and folders in it.
func below(dir string, exclude []string) (map[string]bool, error) {
	if len(exclude) == 0 {
		return nil, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	dir = hostpath.Real(dir)
	found := map[string]bool{}
	for _, at := range exclude {
		if rel, err := filepath.Rel(at, dir); err == nil && filepath.IsLocal(rel) {
			return nil, &fumehood.Error{
				Op: "read for an image", Path: dir, Class: fumehood.ErrFile, Err: fmt.Errorf("images cannot be built from %s", at),
				Hint: "samples could find their answers there: move the build's files elsewhere",
			}
		}
		if rel, err := filepath.Rel(dir, at); err == nil && filepath.IsLocal(rel) {
			found[filepath.ToSlash(rel)] = true
		}
	}
	return found, nil
}

// explain adds the excluded files to the error of a build if they may be its cause.
func (t *Tree) explain(err error) error {
	var known *fumehood.Error
	if len(t.without) == 0 || !errors.As(err, &known) || known.Hint != "" || !errors.Is(err, fumehood.ErrConfig) {
		return err
	}
	without := t.without
	if named := slices.DeleteFunc(slices.Clone(without), func(p string) bool { return !strings.Contains(err.Error(), path.Base(p)) }); len(named) > 0 {
		without = named
	}
	const most = 3
	list := strings.Join(without[:min(most, len(without))], ", ")
	if more := len(without) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	e := *known
	e.Hint = "images of a task exclude grading files and files of other samples: " + list
	return &e
}

// Secrets are the files of a task that would let samples cheat if they were in images. The zero value has none.
type Secrets struct {
	always  []string                   // excluded from all images
	samples map[string]map[string]bool // files of samples, with the samples that have each
}

// Add adds files and folders that are excluded from all images.
func (s *Secrets) Add(paths ...string) {
	for _, path := range paths {
		if path, ok := resolveLinks(path); ok {
			s.always = append(s.always, path)
		}
	}
}

// AddOf adds input files of a sample. An image may contain them only if no other sample uses the image.
func (s *Secrets) AddOf(sample string, paths ...string) {
	if s.samples == nil {
		s.samples = map[string]map[string]bool{}
	}
	for _, path := range paths {
		path, ok := resolveLinks(path)
		if !ok {
			continue
		}
		if s.samples[path] == nil {
			s.samples[path] = map[string]bool{}
		}
		s.samples[path][sample] = true
	}
}

// Exclude returns the paths to exclude from an image that these samples use, sorted.
func (s *Secrets) Exclude(samples []string) []string {
	exclude := slices.Clone(s.always)
	for path, have := range s.samples {
		if slices.ContainsFunc(samples, func(id string) bool { return !have[id] }) {
			exclude = append(exclude, path)
		}
	}
	slices.Sort(exclude)
	return slices.Compact(exclude)
}

// resolveLinks returns the absolute path with its links resolved.
func resolveLinks(path string) (string, bool) {
	if path == "" {
		return "", false
	}
	abs, err := filepath.Abs(path)
	return hostpath.Real(abs), err == nil
}
