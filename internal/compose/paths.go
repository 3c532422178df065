package compose

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"

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
	vars, err := l.included(file, entry["env_file"], at, inner, env)
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

// included reads the variables of an include entry.
func (l *loading) included(file string, value any, at, inner base, env types.Mapping) (types.Mapping, error) {
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
	err := l.placed(path)
	if err == nil {
		err = l.gate.Check(path)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", file, key, err)
	}
	return path, nil
}

// documents decodes the documents of a YAML file as compose-go does. A document with !reset is returned twice, with and
// without the tagged nodes, because it depends on the place which one compose-go uses.
func documents(content []byte) ([]map[string]any, error) {
	var docs []map[string]any
	for dec := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		if err := errors.Join(bounded(&node), textKeys(&node, map[*yaml.Node]bool{})); err != nil {
			return nil, err
		}
		reset := untag(&node, map[*yaml.Node]bool{})
		doc, err := decode(&node)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
		if len(reset) > 0 {
			remove(&node, reset, map[*yaml.Node]bool{})
			if doc, err = decode(&node); err != nil {
				return nil, err
			}
			docs = append(docs, doc)
		}
	}
}

// decode decodes a document that is a mapping.
func decode(node *yaml.Node) (map[string]any, error) {
	var value any
	if err := node.Decode(&value); err != nil {
		return nil, err
	}
	value, err := stringKeys(value)
	if err != nil {
		return nil, err
	}
	doc, ok := value.(map[string]any)
	if !ok && value != nil {
		return nil, errors.New("a mapping was expected at the top")
	}
	return doc, nil
}

// textKeys returns an error for a key that is not a text. Files that compose-go reads have none, but for merge keys.
func textKeys(n *yaml.Node, seen map[*yaml.Node]bool) error {
	if n == nil || seen[n] {
		return nil
	}
	seen[n] = true
	for i, child := range n.Content {
		if tag := child.ShortTag(); n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && tag != "!!str" && tag != "!!merge" {
			return fmt.Errorf("line %d: a key is not a text: %s; quote it", child.Line, child.Value)
		}
		if err := textKeys(child, seen); err != nil {
			return err
		}
	}
	return nil
}

// stringKeys returns value with all mappings converted to map[string]any. Other keys than strings are errors.
func stringKeys(value any) (any, error) {
	var err error
	switch value := value.(type) {
	case []any:
		for i := range value {
			if value[i], err = stringKeys(value[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range value {
			if value[key], err = stringKeys(value[key]); err != nil {
				return nil, err
			}
		}
	case map[any]any:
		all := map[string]any{}
		for key, child := range value {
			name, ok := key.(string)
			if !ok {
				return nil, fmt.Errorf("a key is not a string: %v", key)
			}
			if all[name], err = stringKeys(child); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return value, nil
}

const (
	// maxValues is the maximum number of values in a file. Values below an alias count each time they are referred to.
	maxValues = 200_000
	// maxLevels is how deep values may be nested in others, with aliases expanded. compose-go compares the paths of all
	// values with many patterns, which takes a minute for 9,000 levels.
	maxLevels = 100
)

// bounded returns an error for a document that is too large or too deep with its aliases expanded, or that contains
// itself.
func bounded(root *yaml.Node) error {
	type extent struct{ values, levels int }
	known := map[*yaml.Node]extent{}
	var measure func(n *yaml.Node) extent
	measure = func(n *yaml.Node) extent {
		if n == nil {
			return extent{}
		}
		if got, ok := known[n]; ok {
			return got
		}
		known[n] = extent{values: maxValues + 1} // in case it contains itself
		all := measure(n.Alias)
		all.values++
		below := 0
		for _, child := range n.Content {
			of := measure(child)
			all.values = min(all.values+of.values, maxValues+1)
			below = max(below, of.levels)
		}
		all.levels += below
		if len(n.Content) > 0 {
			all.levels++
		}
		known[n] = all
		return all
	}
	switch all := measure(root); {
	case all.values > maxValues:
		return fmt.Errorf("it has more than %d values with aliases expanded", maxValues)
	case all.levels > maxLevels:
		return fmt.Errorf("its values are nested more than %d levels deep with aliases expanded", maxLevels)
	}
	return nil
}

// untag removes the tags !reset and !override, which change how files are merged. It returns the nodes tagged !reset.
func untag(n *yaml.Node, seen map[*yaml.Node]bool) map[*yaml.Node]bool {
	reset := map[*yaml.Node]bool{}
	if n == nil || seen[n] {
		return reset
	}
	seen[n] = true
	switch n.Tag {
	case "!reset":
		reset[n], n.Tag = true, ""
	case "!override":
		n.Tag = ""
	}
	maps.Copy(reset, untag(n.Alias, seen))
	for i, child := range n.Content {
		maps.Copy(reset, untag(child, seen))
		// The decoder accepts a list of mappings as value of a merge key, but not an alias of such a list.
		// compose-go accepts both.
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "<<" && child.Kind == yaml.AliasNode {
			n.Content[i] = child.Alias
		}
	}
	return reset
}

// remove removes nodes, and aliases of them, from their parents below n.
func remove(n *yaml.Node, nodes, seen map[*yaml.Node]bool) {
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	remove(n.Alias, nodes, seen)
	var kept []*yaml.Node
	step := 1
	if n.Kind == yaml.MappingNode {
		step = 2 // a key and its value
	}
	for i := 0; i+step <= len(n.Content); i += step {
		value := n.Content[i+step-1]
		if nodes[value] || nodes[value.Alias] {
			continue
		}
		remove(value, nodes, seen)
		kept = append(kept, n.Content[i:i+step]...)
	}
	n.Content = kept
}

// listOf returns the items of a list, nothing for nil, and any other value as a list of one.
func listOf(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	}
	return []any{value}
}
