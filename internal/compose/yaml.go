package compose

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"

	"go.yaml.in/yaml/v4"
)

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
		if err := errors.Join(checkBounds(&node), textKeys(&node, map[*yaml.Node]bool{})); err != nil {
			return nil, err
		}
		reset := untag(&node, map[*yaml.Node]bool{})
		doc, err := decode(&node)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
		if len(reset) > 0 {
			removeNodes(&node, reset, map[*yaml.Node]bool{})
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

// checkBounds returns an error for a document that is too large or too deep with its aliases expanded, or that contains
// itself.
func checkBounds(root *yaml.Node) error {
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
			size := measure(child)
			all.values = min(all.values+size.values, maxValues+1)
			below = max(below, size.levels)
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

// removeNodes removes nodes, and aliases of them, from their parents below n.
func removeNodes(n *yaml.Node, nodes, seen map[*yaml.Node]bool) {
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	removeNodes(n.Alias, nodes, seen)
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
		removeNodes(value, nodes, seen)
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
