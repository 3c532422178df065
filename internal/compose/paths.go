package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood/internal/hostpath"
)

// A project may read regular files of bounded size in its folder, after all links are followed. Other files must be
// allowed by the user by name. hostpath.Gate checks this.

// maxIncluded is the maximum number of files that a project includes and extends.
const maxIncluded = 100

// base has the folders that compose-go joins with the relative paths of a file. In an included file, working is
// relative to this process's directory.
type base struct {
	loader  string // for files that it includes and extends
	working string // for env files and project directories of its includes
}

// maxEntries is the maximum number of services in all files of a project, and that of networks, volumes, configs and
// secrets. Each takes a millisecond to load, and loading cannot be canceled.
const maxEntries = 2000

// scan recursively checks all files that a file includes and extends, before compose-go reads them.
func (l *loading) scan(file string, content []byte, at base, env types.Mapping) error {
	l.scanned++
	if l.scanned > maxIncluded {
		return fmt.Errorf("more than %d files are included and extended", maxIncluded)
	}
	docs, err := documents(content)
	if err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	if err := l.measure(file, docs, env); err != nil {
		return err
	}
	if _, known := l.envs[file]; !known {
		l.envs[file] = env // only now: others expand the values of files that are here
	}
	for _, doc := range docs {
		for _, entry := range listOf(doc["include"]) {
			if err := l.later(l.scanInclude(file, entry, at, env)); err != nil {
				return err
			}
		}
		services, _ := doc["services"].(map[string]any)
		if err := l.count(file, doc); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(services)) {
			svc, _ := services[name].(map[string]any)
			extends, _ := svc["extends"].(map[string]any)
			if extends["file"] == nil {
				continue
			}
			if err := l.later(l.scanExtended(file, name, extends["file"], at, env)); err != nil {
				return err
			}
		}
	}
	return l.measureExtended(file, docs, env)
}

// later keeps the error of a path that may not be read, so that all of them are reported at once. It returns any other.
func (l *loading) later(err error) error {
	if outside, ok := errors.AsType[interface {
		error
		Outside() string
	}](err); ok {
		l.outside.Add(outside.Outside(), err, err)
		return nil
	}
	return err
}

// scanExtended checks the file that a service extends.
func (l *loading) scanExtended(file, service string, value any, at base, env types.Mapping) error {
	path, err := l.reference(file, "services."+service+".extends.file", value, at.loader, env)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	return l.follow(path, base{dir, dir}, env)
}

// count adds the number of a document's services, networks, volumes, configs and secrets.
func (l *loading) count(file string, doc map[string]any) error {
	for _, key := range [...]string{"services", "networks", "volumes", "configs", "secrets"} {
		entries, _ := doc[key].(map[string]any)
		if l.entries[key] += len(entries); l.entries[key] > maxEntries {
			return fmt.Errorf("%s: there are more than %d %s in the project", file, maxEntries, key)
		}
	}
	return nil
}

// scanInclude checks one entry of include.
func (l *loading) scanInclude(file string, value any, at base, env types.Mapping) error {
	entry, ok := value.(map[string]any)
	if !ok {
		entry = map[string]any{"path": value}
	}
	var included []string
	for _, item := range listOf(entry["path"]) {
		path, err := l.reference(file, "include", item, at.loader, env)
		if err != nil {
			return err
		}
		included = append(included, path)
	}
	if len(included) == 0 {
		return nil // compose-go reports it
	}
	inner := base{loader: filepath.Dir(included[0])}
	inner.working = at.relative(inner.loader)
	if err := l.projectDirectory(file, entry["project_directory"], at, &inner, env); err != nil {
		return err
	}
	vars, err := l.readInclude(file, entry["env_file"], at, inner, env)
	if err != nil {
		return err
	}
	for _, path := range included {
		if err := l.follow(path, inner, env.Clone().Merge(vars)); err != nil {
			return err
		}
	}
	return nil
}

// projectDirectory sets the bases of an include entry that has a project_directory.
func (l *loading) projectDirectory(file string, value any, at base, inner *base, env types.Mapping) error {
	const key = "include.project_directory"
	if value == nil {
		return nil
	}
	written, err := substitute(value, env)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", file, key, err)
	}
	if written == "" {
		return nil
	}
	if inner.loader, err = l.pass(file, key, written, at.working); err != nil {
		return err
	}
	if inner.working = written; !filepath.IsAbs(written) {
		inner.working = at.relative(filepath.Join(at.loader, written))
	}
	return nil
}

// readInclude reads the variables of an include entry.
func (l *loading) readInclude(file string, value any, at, inner base, env types.Mapping) (types.Mapping, error) {
	var files []string
	for _, item := range listOf(value) {
		path, err := l.reference(file, "include.env_file", item, at.working, env)
		if err != nil {
			return nil, err
		}
		if path != os.DevNull {
			files = append(files, path)
		}
	}
	for _, path := range files {
		if err := l.gate.File(path, maxFile); err != nil {
			return nil, err
		}
	}
	if len(listOf(value)) == 0 {
		var err error
		if files, err = l.dotEnv(inner.loader); err != nil {
			return nil, err
		}
	}
	vars, err := l.readVariables(env, files)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		_, given := l.given[name]
		if outer, set := env[name]; set && !given && outer != vars[name] && len(listOf(value)) > 0 {
			l.hidden = append(l.hidden, Warning{
				Key: "include.env_file", At: l.places.findIn(file, "include").String(),
				Reason: "its " + name + " is not used: the variable files of the including project set it too, and have precedence",
			})
		}
	}
	return vars, err
}

// follow scans a file that another one refers to. It ignores missing files, which compose-go reports.
func (l *loading) follow(path string, at base, env types.Mapping) error {
	if err := l.gate.File(path, maxFile); err != nil {
		return err
	}
	content, err := hostpath.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.places.include(path, content)
	return l.scan(path, content, at, env)
}

// relative returns path, or the folder of a file, as compose-go passes it to an include.
func (b base) relative(path string) string {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		path = filepath.Dir(path)
	}
	if rel, err := filepath.Rel(b.loader, path); err == nil {
		return rel
	}
	return path
}

// substitute returns value, which must be a string, with its variables replaced.
func substitute(value any, env types.Mapping) (string, error) {
	text, ok := value.(string)
	if !ok {
		return "", errors.New("a path was expected")
	}
	return expand(text, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

// reference returns the path that a file has under a key. It fails if the gate rejects the path.
func (l *loading) reference(file, key string, value any, dir string, env types.Mapping) (string, error) {
	path, err := substitute(value, env)
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", file, key, err)
	}
	return l.pass(file, key, path, dir)
}

// pass returns path joined with dir if it is relative. It fails if the gate rejects it.
func (l *loading) pass(file, key, path, dir string) (string, error) {
	if path == os.DevNull {
		return path, nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	err := l.checkPlace(path)
	if err == nil {
		err = l.gate.Check(path)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", file, key, err)
	}
	return path, nil
}
