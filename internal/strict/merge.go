package strict

import "go.yaml.in/yaml/v3"

// Mappings returns a mapping, followed by those that its merge keys (<<) add, the ones with precedence first. Each is
// listed once, even if it contains itself. For another node, or nil, it returns none.
func Mappings(node *yaml.Node) (all []*yaml.Node) {
	seen := map[*yaml.Node]bool{}
	var add func(node *yaml.Node)
	add = func(node *yaml.Node) {
		if node = Target(node); node.Kind != yaml.MappingNode || seen[node] {
			return
		}
		seen[node] = true
		all = append(all, node)
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].ShortTag() != "!!merge" {
				continue
			}
			value := Target(node.Content[i+1])
			add(value)
			if value.Kind == yaml.SequenceNode {
				for _, item := range value.Content {
					add(item)
				}
			}
		}
	}
	if node != nil {
		add(node)
	}
	return all
}
