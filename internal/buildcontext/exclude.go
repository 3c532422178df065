package buildcontext

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

// below are the paths of excluded files and folders in a context's folder.
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
				Op: "read for an image", Path: dir, Class: fumehood.ErrConfig, Err: fmt.Errorf("no image may be built of %s", at),
				Hint: "samples could look for their answers there: move what the image is built of",
			}
		}
		if rel, err := filepath.Rel(dir, at); err == nil && filepath.IsLocal(rel) {
			found[filepath.ToSlash(rel)] = true
		}
	}
	return found, nil
}

// explain adds to the error of a build what of the folder was excluded, where that may be its cause.
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
	said := strings.Join(without[:min(most, len(without))], ", ")
	if more := len(without) - most; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	e := *known
	e.Hint = "no image of a task has what tells how it is judged, or is another sample's: " + said
	return &e
}

// Secrets are the files of a task that samples could cheat with, if images had them. The zero value has none.
type Secrets struct {
	always []string                   // no image may have them
	of     map[string]map[string]bool // those of samples, with the samples that have each
}

// Add adds files and folders that no image may have.
func (s *Secrets) Add(paths ...string) {
	for _, path := range paths {
		if path, ok := resolved(path); ok {
			s.always = append(s.always, path)
		}
	}
}

// AddOf adds files that a sample is given, which an image may have that no other sample uses.
func (s *Secrets) AddOf(sample string, paths ...string) {
	if s.of == nil {
		s.of = map[string]map[string]bool{}
	}
	for _, path := range paths {
		path, ok := resolved(path)
		if !ok {
			continue
		}
		if s.of[path] == nil {
			s.of[path] = map[string]bool{}
		}
		s.of[path][sample] = true
	}
}

// Exclude returns what an image may not have that these samples use, sorted.
func (s *Secrets) Exclude(samples []string) []string {
	exclude := slices.Clone(s.always)
	for path, have := range s.of {
		if slices.ContainsFunc(samples, func(id string) bool { return !have[id] }) {
			exclude = append(exclude, path)
		}
	}
	slices.Sort(exclude)
	return slices.Compact(exclude)
}

// resolved is an absolute path with its links resolved.
func resolved(path string) (string, bool) {
	if path == "" {
		return "", false
	}
	abs, err := filepath.Abs(path)
	return hostpath.Real(abs), err == nil
}
