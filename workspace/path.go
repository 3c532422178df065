package workspace

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// CleanPath checks a path, with slashes, that names something in a folder, and returns it in its shortest
// form. One that is absolute, has ".." in it, or names the folder itself is an ErrConfig: so is, on every
// system, what would be another path on Windows (a backslash or a colon).
func CleanPath(p string) (string, error) {
	clean, err := cleanPath(p)
	if err != nil {
		return "", failure("check path", "", fumehood.ErrConfig, err)
	}
	return clean, nil
}

func cleanPath(p string) (string, error) {
	switch {
	case p == "" || path.Clean(p) == ".":
		return "", wrong("%q names nothing in the folder", p)
	case path.IsAbs(p):
		return "", wrong("%q is absolute: paths here are relative", p)
	case slices.Contains(strings.Split(p, "/"), ".."):
		return "", wrong("%q has .. in it", p)
	case strings.ContainsAny(p, "\\:\x00") || !filepath.IsLocal(filepath.FromSlash(p)):
		return "", wrong("%q has a backslash, a colon or a NUL byte in it", p)
	case len(p) > maxPath:
		return "", wrong("the path %s... is longer than %d bytes", p[:64], maxPath)
	}
	return path.Clean(p), nil
}
