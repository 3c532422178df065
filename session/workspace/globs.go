package workspace

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// globs select the content of a snapshot.
type globs struct {
	keep   []string // nil keeps all
	ignore []string
}

// compile checks the patterns. A pattern that can never match is an error.
func compile(keep, ignore []string) (globs, error) {
	for _, p := range slices.Concat(keep, ignore) {
		if !doublestar.ValidatePattern(p) {
			return globs{}, wrong("invalid glob %q", p)
		}
		if p == "" || path.IsAbs(p) || path.Clean(p) != p || slices.Contains(strings.Split(p, "/"), "..") {
			return globs{}, wrong("the glob %q matches nothing: write a relative path without . or .. and without a slash at its end, such as build or **/*.pyc", p)
		}
	}
	return globs{keep, ignore}, nil
}

// ignored reports whether the path, with everything below it, is left out.
func (g globs) ignored(p string) bool { return matches(g.ignore, p) }

// kept reports whether the path, with everything below it, is selected.
func (g globs) kept(p string) bool { return g.keep == nil || matches(g.keep, p) }

func matches(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return doublestar.MatchUnvalidated(pattern, p) })
}
