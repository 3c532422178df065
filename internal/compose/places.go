package compose

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
)

// places knows where in a project's files things are written.
type places struct {
	files []string
	roots []*yaml.Node
	own   int // so many are the project's own; the others are those that they include or extend
}

// add notes a file. One that is no YAML has no places: compose-go will say what is wrong with it.
func (p *places) add(path string, content []byte) {
	var doc yaml.Node
	root := &yaml.Node{}
	if yaml.Unmarshal(content, &doc) == nil && len(doc.Content) > 0 {
		root = doc.Content[0]
	}
	p.files, p.roots = append(p.files, path), append(p.roots, root)
	p.own = len(p.files)
}

// include notes a file that another one includes or extends, after all of the project's own.
func (p *places) include(path string, content []byte) {
	if own := p.own; !slices.Contains(p.files, path) {
		p.add(path, content)
		p.own = own
	}
}

// order sorts services as the files name them; those that are only in included files come last, by name.
func (p *places) order(services types.Services) []string {
	var order []string
	for _, root := range p.roots[:p.own] {
		node, _ := lookup(root, "services")
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

// place is a line of a file.
type place struct {
	file  string // empty where there is none
	order int    // of the file among all
	line  int    // 0 for the file as a whole
}

// String returns file:line.
func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// find says where the deepest of nested keys is that is there; of several files, in the last.
func (p *places) find(keys []string) place {
	var found place
	depth := 0
	for i, root := range p.roots {
		if i == 0 {
			found = place{file: p.files[i]}
		}
		node := root
		for d, key := range keys {
			next, line := lookup(node, key)
			if next == nil {
				break
			}
			if d+1 >= depth {
				depth, found = d+1, place{p.files[i], i, line}
			}
			node = next
		}
	}
	return found
}

// lookup is the value of a mapping's key, and the line it begins at. Items of lists have numbers for keys.
func lookup(node *yaml.Node, key string) (*yaml.Node, int) {
	if node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case node == nil:
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case node.Kind == yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	}
	return nil, 0
}

var (
	keyPath = regexp.MustCompile(`\b(?:services|networks|volumes|secrets|configs|include)(?:\.[\w-]+|\[\d+\])+`)
	service = regexp.MustCompile(`service "([\w.-]+)"`)
	extra   = regexp.MustCompile(`additional propert(?:y|ies) '([^']+)'`)
	prefix  = regexp.MustCompile(`^validating [^:]+: `)
)

// locate puts file and line before what compose-go says of a key, and the file before what it says of none.
func (p *places) locate(text string) string {
	text = prefix.ReplaceAllString(text, "")
	var keys []string
	if at := keyPath.FindString(text); at != "" {
		keys = strings.FieldsFunc(at, func(r rune) bool { return strings.ContainsRune(".[]", r) })
	} else if m := service.FindStringSubmatch(text); m != nil {
		keys = []string{"services", m[1]}
	}
	if m := extra.FindStringSubmatch(text); m != nil {
		keys = append(keys, m[1])
	}
	if at := p.find(keys).String(); at != "" && !strings.Contains(text, p.files[0]) {
		text = at + ": " + strings.TrimSpace(text)
	}
	return text
}

// bad is an error about a key of a service.
func (p *Project) bad(service, key, format string, a ...any) error {
	return p.badAt([]string{"services", service, key}, format, a...)
}

// badAt is an error about nested keys.
func (p *Project) badAt(keys []string, format string, a ...any) error {
	return &fumehood.Error{
		Op: opLoad, Class: fumehood.ErrConfig,
		Err: fmt.Errorf("%s: %s: %w", p.places.find(keys), strings.Join(keys, "."), fmt.Errorf(format, a...)),
	}
}
