package compose

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood/internal/strict"
)

// places finds the places of keys in a project's files.
type places struct {
	files []string     // one entry for each document of a file
	roots []*yaml.Node // the documents
	own   int          // number of documents of the project's own files, which come first; the others are included or extended
}

// addDocuments adds the documents of a file. A file that is not YAML has no places; compose-go reports it.
func (p *places) addDocuments(path string, content []byte) {
	for dec, n := yaml.NewDecoder(bytes.NewReader(content)), 0; ; n++ {
		var doc yaml.Node
		root := &yaml.Node{}
		end := dec.Decode(&doc) != nil || len(doc.Content) == 0
		if !end {
			root = doc.Content[0]
		}
		if !end || n == 0 {
			p.files, p.roots = append(p.files, path), append(p.roots, root)
		}
		if end {
			break
		}
	}
	p.own = len(p.files)
}

// include adds a file that another one includes or extends. It must be called after all of the project's own files were
// added.
func (p *places) include(path string, content []byte) {
	if own := p.own; !slices.Contains(p.files, path) {
		p.addDocuments(path, content)
		p.own = own
	}
}

// order returns the names of the services in the order of the files. Services that are only in included files come
// last, sorted by name.
func (p *places) order(services types.Services) []string {
	var order []string
	for _, root := range p.roots[:p.own] {
		node, _ := lookup(root, "services")
		for _, mapping := range strict.Mappings(node) {
			for i := 0; i < len(mapping.Content); i += 2 {
				name := mapping.Content[i].Value
				if _, ok := services[name]; ok && !slices.Contains(order, name) {
					order = append(order, name)
				}
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
	file  string // empty if unknown
	order int    // index of the file
	line  int    // 0 for the file as a whole
}

// String returns file:line.
func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// find returns the place of nested keys. If the files have only a part of them, it returns the place of the deepest key
// found. If several files have it, it returns the place in the last one.
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

// findIn returns the place of a top-level key in a file.
func (p *places) findIn(file, key string) place {
	for i, root := range p.roots {
		if _, line := lookup(root, key); p.files[i] == file && line > 0 {
			return place{file, i, line}
		}
	}
	return place{file: file}
}

// has reports whether a file has these nested keys.
func (p *places) has(keys []string) bool {
	return slices.ContainsFunc(p.roots, func(node *yaml.Node) bool {
		for _, key := range keys {
			node, _ = lookup(node, key)
		}
		return node != nil
	})
}

// lookup returns the value of a key of a mapping and the line of the key, or nil. The mapping has the keys that a merge
// key (<<) adds, too. The keys of a list are its indexes.
func lookup(node *yaml.Node, key string) (*yaml.Node, int) {
	if node == nil {
		return nil, 0
	}
	if list := strict.Target(node); list.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(list.Content) {
			return list.Content[i], list.Content[i].Line
		}
	}
	for _, mapping := range strict.Mappings(node) {
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			if mapping.Content[i].Value == key {
				return mapping.Content[i+1], mapping.Content[i].Line
			}
		}
	}
	return nil, 0
}

var (
	keyPath = regexp.MustCompile(`\b(?:services|networks|volumes|secrets|configs|include)(?:\.[\w-]+|\[[\w.-]+\])+`)
	service = regexp.MustCompile(`service "([\w.-]+)"`)
	extra   = regexp.MustCompile(`additional propert(?:y|ies) '([^']+)'`)
	prefix  = regexp.MustCompile(`^(?:validating [^:]+: |decoding failed due to the following error\(s\):\s*)`)
)

// locate prefixes each line of a message of compose-go with file and line if it names a key, otherwise with the file.
func (p *places) locate(text string) string {
	var all []string
	for line := range strings.SplitSeq(prefix.ReplaceAllString(text, ""), "\n") {
		if strings.TrimSpace(line) != "" {
			all = append(all, p.locateLine(line))
		}
	}
	return strings.Join(all, "\n")
}

func (p *places) locateLine(text string) string {
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
