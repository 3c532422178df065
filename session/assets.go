package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

// checkAssets rejects assets that a link leads out of their folder.
func (s *Session) checkAssets() error {
	if len(s.assets) == 0 {
		return nil
	}
	gate, err := hostpath.NewGate("the assets' folder", cmp.Or(s.opts.AssetDir, "."))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.assets)) {
		host := s.hostPath(s.assets[name])
		if !gate.Inside(host) {
			return &fumehood.Error{
				Op: "use static asset " + name, Path: host, Class: fumehood.ErrConfig,
				Err: errors.New("a link leads out of the assets' folder"), Hint: "copy it into the folder",
			}
		}
	}
	return nil
}

// placeAssets copies an agent's assets to their places in the workspace. It returns an ErrConfig instead of
// replacing an existing file.
func (s *Session) placeAssets(ctx context.Context) error {
	if s.opts.Kind != Agent || len(s.assets) == 0 {
		return nil
	}
	root, err := os.OpenRoot(s.Workspace())
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range slices.Sorted(maps.Keys(s.assets)) {
		a := s.assets[name]
		fail := func(err error) error {
			return &fumehood.Error{Op: "copy static asset " + name, Path: a.Path, Class: fumehood.ErrConfig, Err: err}
		}
		if _, err := root.Lstat(filepath.FromSlash(a.Target())); err == nil {
			return fail(fmt.Errorf("the workspace already has a file %s", a.Target()))
		}
		files, err := assetFiles(s.hostPath(a), a.Target())
		if err != nil {
			return fail(err)
		}
		if err := workspace.WriteInputs(ctx, s.Workspace(), files); err != nil {
			return err
		}
	}
	return nil
}

// sendAssets uploads an evaluation's assets into the container instead of mounting them. The files belong to
// root, so other users of the container cannot change them.
func (r *Runtime) sendAssets(ctx context.Context) error {
	if r.s.opts.Kind != Evaluation {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.s.assets)) {
		a := r.s.assets[name]
		files, err := assetFiles(r.s.hostPath(a), a.ContainerPath())
		for _, f := range files {
			if err == nil {
				err = sendFile(ctx, r.sb, f)
			}
		}
		if err != nil {
			return fmt.Errorf("upload static asset %s: %w", name, err)
		}
	}
	return nil
}

func sendFile(ctx context.Context, svc fumehood.Service, in workspace.Input) error {
	f, err := os.Open(in.From)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return svc.WriteFrom(ctx, in.Path, f, info.Size(), fumehood.WriteOptions{Mode: in.Mode | 0o444})
}

// assetFiles lists the files of an asset as inputs of a workspace. Empty folders are left out.
func assetFiles(host, target string) (files []workspace.Input, err error) {
	err = filepath.WalkDir(host, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a folder", p)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(host, p)
		files = append(files, workspace.Input{Path: path.Join(target, filepath.ToSlash(rel)), From: p, Mode: info.Mode().Perm()})
		return err
	})
	return files, err
}

// assetGlobs returns globs that match the copies of an agent's assets in the workspace.
func (s *Session) assetGlobs() (globs []string) {
	if s.opts.Kind != Agent {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.assets)) {
		globs = append(globs, globMeta.ReplaceAllString(s.assets[name].Target(), `\$0`))
	}
	return globs
}

var globMeta = regexp.MustCompile(`[\\*?\[\]{}!^]`)

func (s *Session) hostPath(a spec.Asset) string {
	return filepath.Join(s.opts.AssetDir, filepath.FromSlash(a.Path))
}

// assetPath returns the path at which the session's commands find an asset.
func (s *Session) assetPath(a spec.Asset) string {
	switch {
	case s.opts.Kind == Agent && s.local():
		return filepath.Join(s.Workspace(), filepath.FromSlash(a.Target()))
	case s.opts.Kind == Agent:
		return path.Join(s.env.Docker.Workdir, a.Target())
	case s.local():
		return s.hostPath(a)
	}
	return a.ContainerPath()
}

var placeholder = regexp.MustCompile(`\{\{\s*static:([^{}]*?)\s*\}\}`)

// Resolve returns a copy of v in which each {{static:NAME}} in a string is replaced by the path at which the
// session's commands find that asset: a path in the container, or under type local a path of this machine. V has
// the types that JSON decodes to. Resolve replaces in strings, in maps, also in their keys, and in slices, also in
// []string and map[string]string. Other values are kept as they are. An unknown asset is an ErrConfig, and so are
// two keys of a map that become the same.
func (s *Session) Resolve(v any) (any, error) {
	var errs []error
	resolved := s.resolve(v, &errs)
	if err := errors.Join(errs...); err != nil {
		return nil, opError("resolve placeholders", err)
	}
	return resolved, nil
}

func (s *Session) resolve(v any, errs *[]error) any {
	switch v := v.(type) {
	case string:
		return placeholder.ReplaceAllStringFunc(v, func(found string) string {
			name := placeholder.FindStringSubmatch(found)[1]
			a, ok := s.assets[name]
			if !ok {
				known := "the session has none"
				if len(s.assets) > 0 {
					known = "known assets: " + strings.Join(slices.Sorted(maps.Keys(s.assets)), ", ")
				}
				*errs = append(*errs, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("unknown static asset %q, %s", name, known)})
				return found
			}
			return s.assetPath(a)
		})
	case []any:
		return resolveSlice(s, v, errs)
	case []string:
		return resolveSlice(s, v, errs)
	case map[string]any:
		return resolveMap(s, v, errs)
	case map[string]string:
		return resolveMap(s, v, errs)
	}
	return v
}

func resolveSlice[T any](s *Session, v []T, errs *[]error) []T {
	out := slices.Clone(v)
	for i := range out {
		out[i], _ = s.resolve(out[i], errs).(T) // a nil value stays nil
	}
	return out
}

func resolveMap[T any](s *Session, v map[string]T, errs *[]error) map[string]T {
	if v == nil {
		return nil
	}
	out := make(map[string]T, len(v))
	for _, k := range slices.Sorted(maps.Keys(v)) {
		key, _ := s.resolve(k, errs).(string)
		if _, twice := out[key]; twice {
			*errs = append(*errs, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("key %q: another key becomes %q too", k, key)})
		}
		out[key], _ = s.resolve(v[k], errs).(T) // a nil value stays nil
	}
	return out
}
