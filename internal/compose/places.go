package compose

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/lazaret/lazaret"
)

// places knows where in a project's files things are written.
type places struct {
	files []string
	roots []*yaml.Node
}

// add parses a file.
func (p *places) add(path string, content []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	p.files = append(p.files, path)
	if len(doc.Content) == 0 {
		p.roots = append(p.roots, &yaml.Node{})
	} else {
		p.roots = append(p.roots, doc.Content[0])
	}
	return nil
}

// order sorts services as the files name them; those of included files come last, by name.
func (p *places) order(services types.Services) []string {
	var order []string
	for _, root := range p.roots {
		node := child(root, "services")
		if node == nil || node.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i < len(node.Content); i += 2 {
			name := node.Content[i].Value
			if _, ok := services[name]; ok && !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
	}
	var rest []string
	for name := range services {
		if !slices.Contains(order, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(order, rest...)
}

// find returns the file and line of the deepest of the keys that is there; the last file wins.
func (p *places) find(keys ...string) (file string, line int) {
	depth := 0
	for i, root := range p.roots {
		node := root
		for d, key := range keys {
			next, at := lookup(node, key)
			if next == nil {
				break
			}
			if d+1 >= depth {
				depth, file, line = d+1, p.files[i], at
			}
			node = next
		}
	}
	if file == "" && len(p.files) > 0 {
		file = p.files[0]
	}
	return file, line
}

// child is the value of a key of a mapping; nil where it has none.
func child(node *yaml.Node, key string) *yaml.Node {
	v, _ := lookup(node, key)
	return v
}

// lookup is child, with the key's line. An alias is followed.
func lookup(node *yaml.Node, key string) (*yaml.Node, int) {
	if node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node == nil || node.Kind != yaml.MappingNode {
		return nil, 0
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1], node.Content[i].Line
		}
	}
	return nil, 0
}

// problem gives an error of compose-go, which names keys, its class.
func (p *places) problem(err error) error {
	var ours *lazaret.Error
	if errors.As(err, &ours) {
		return err
	}
	return &lazaret.Error{Op: opLoad, Class: lazaret.ErrConfig, Err: err}
}

// bad is an error about a key of a service.
func (p *Project) bad(service, key, format string, a ...any) error {
	return p.badAt([]string{"services", service, key}, format, a...)
}

// badAt is an error about a key.
func (p *Project) badAt(keys []string, format string, a ...any) error {
	where := ""
	if p.places != nil {
		file, line := p.places.find(keys...)
		where = file + ": "
		if line > 0 {
			where = fmt.Sprintf("%s:%d: ", file, line)
		}
	}
	return &lazaret.Error{
		Op: opLoad, Class: lazaret.ErrConfig,
		Err: fmt.Errorf("%s%s: %w", where, strings.Join(keys, "."), fmt.Errorf(format, a...)),
	}
}
