package workspace

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// CleanPath checks a path, with slashes, of a file in a folder, and returns its shortest form. A path that is
// absolute, contains "..", or names the folder itself is an ErrConfig. So is, on every system, a path with a
// backslash or a colon, which would be a different path on Windows.
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
		return "", wrong("%q does not name a file in the folder", p)
	case path.IsAbs(p):
		return "", wrong("%q is absolute, not relative", p)
	case slices.Contains(strings.Split(p, "/"), ".."):
		return "", wrong("%q contains ..", p)
	case strings.ContainsAny(p, "\\:\x00") || !filepath.IsLocal(filepath.FromSlash(p)):
		return "", wrong("%q contains a backslash, a colon or a NUL byte", p)
	case len(p) > maxPath:
		return "", wrong("the path %s... is longer than %d bytes", p[:64], maxPath)
	}
	return path.Clean(p), nil
}
