package spec

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// StaticDir is the folder of the static assets in containers.
const StaticDir = "/static"

// Asset is a file or folder that is provided to sessions.
type Asset struct {
	Path     string // on the host, relative to the folder of all assets, with slashes
	SavePath string // in containers relative to StaticDir, for agents to the workspace; empty means Path
}

// Target returns SavePath or its default, cleaned.
func (a Asset) Target() string { return path.Clean(cmp.Or(a.SavePath, a.Path)) }

// ContainerPath returns the path of the asset in a container.
func (a Asset) ContainerPath() string { return path.Join(StaticDir, a.Target()) }

// MergeAssets merges groups of assets by name; a later group overrides an earlier one. Both paths of an asset
// must be relative and without "..". No two assets may be saved at the same path or one below the other. Its
// errors are fumehood.ErrConfig.
func MergeAssets(groups ...map[string]Asset) (map[string]Asset, error) {
	merged := map[string]Asset{}
	for _, g := range groups {
		maps.Copy(merged, g)
	}
	var errs []error
	bad := func(name, format string, a ...any) {
		errs = append(errs, &fumehood.Error{Op: "static asset " + name, Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)})
	}
	names := slices.Sorted(maps.Keys(merged))
	for i, name := range names {
		a := merged[name]
		if !relative(a.Path) {
			bad(name, "path: wanted a relative path without .., found %q", a.Path)
		}
		if a.SavePath != "" && !relative(a.SavePath) {
			bad(name, "save_path: wanted a relative path without .., found %q", a.SavePath)
		}
		for _, other := range names[:i] {
			t, o := a.Target()+"/", merged[other].Target()+"/"
			if strings.HasPrefix(t, o) || strings.HasPrefix(o, t) {
				bad(name, "save_path: wanted a path that does not overlap others, found %q and %q of %s", a.Target(), merged[other].Target(), other)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return merged, nil
}

// relative reports whether p is, on every system, the path of something below a folder.
func relative(p string) bool {
	clean := path.Clean(p)
	return p != "" && clean != "." && fs.ValidPath(clean) && filepath.IsLocal(p) &&
		!strings.ContainsAny(p, "\\\x00") && !slices.Contains(strings.Split(p, "/"), "..")
}
