package compose

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/schema"

	"github.com/fumehood/fumehood"
)

// schemaNode is the part of a JSON schema that defines keys.
type schemaNode struct {
	Ref                  string                 `json:"$ref"`
	Defs                 map[string]*schemaNode `json:"$defs"`
	Properties           map[string]*schemaNode
	PatternProperties    map[string]*schemaNode
	AdditionalProperties json.RawMessage
	Items                *schemaNode
	OneOf, AnyOf, AllOf  []*schemaNode
}

// specified returns the paths of all keys of the Compose specification, as keys.txt writes them.
func specified(t *testing.T) map[string]bool {
	t.Helper()
	var root schemaNode
	if err := json.Unmarshal([]byte(schema.Schema), &root); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	join := func(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	var walk func(path string, n *schemaNode)
	walk = func(path string, n *schemaNode) {
		if n == nil {
			return
		}
		if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
			if root.Defs[name] == nil {
				t.Fatalf("%s: no definition %s", path, name)
			}
			walk(path, root.Defs[name])
		} else if n.Ref != "" {
			t.Fatalf("%s: reference to %s", path, n.Ref)
		}
		for key, child := range n.Properties {
			paths[join(path, key)] = true
			walk(join(path, key), child)
		}
		for pattern, child := range n.PatternProperties {
			if pattern != "^x-" {
				walk(join(path, "*"), child)
			}
		}
		var more schemaNode
		if json.Unmarshal(n.AdditionalProperties, &more) == nil { // otherwise it is true or false
			walk(join(path, "*"), &more)
		}
		walk(path, n.Items)
		for _, child := range slices.Concat(n.OneOf, n.AnyOf, n.AllOf) {
			walk(path, child)
		}
	}
	walk("", &root)
	if len(paths) < 300 {
		t.Fatalf("found only %d keys", len(paths))
	}
	return paths
}

// Keys that a later version of the specification adds must be classified before they can be used.
func TestKeys_complete(t *testing.T) {
	specified, table := specified(t), keys()
	for _, path := range slices.Sorted(maps.Keys(specified)) {
		known := false
		for p := path; ; {
			if v, ok := table.verdicts[p]; ok {
				known = p == path || v.class == classUnsafe || v.class == classUnsupported || v.class == classIgnored
				break
			}
			i := strings.LastIndexByte(p, '.')
			if i < 0 {
				break
			}
			p = p[:i]
		}
		if !known {
			t.Errorf("%s is not in keys.txt: classify it", path)
		}
	}
	loaders := []string{"configs.*.Content", "secrets.*.Content", "services.*.name"}
	for path, v := range table.verdicts {
		if !specified[path] && !slices.Contains(loaders, path) {
			t.Errorf("%s is in keys.txt, but not in the specification", path)
		}
		switch v.class {
		case classOK, classChecked, classIgnored:
		case classUnsafe, classUnsupported:
			if v.why == "" {
				t.Errorf("%s: no reason", path)
			}
		default:
			t.Errorf("%s: unknown class %q", path, v.class)
		}
	}
}

// refusedKeys is a file with one instance of every rejected key. Its comments are the keys as errors name them.
const refusedKeys = "testdata/refused.yaml"

func TestLoad_rejectedKeys(t *testing.T) {
	content, err := os.ReadFile(refusedKeys)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Load(t.Context(), "box", fumehood.Compose{Files: []string{refusedKeys}})
	if err == nil {
		t.Fatal("Load succeeded")
	}
	says := err.Error()
	all := map[string]bool{}
	for path, v := range keys().verdicts {
		if v.class == classUnsafe || v.class == classUnsupported {
			all[path] = true
		}
	}
	file, err := filepath.Abs(refusedKeys)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		_, key, found := strings.Cut(strings.TrimSpace(line), "# ")
		if !found || n < 3 {
			continue
		}
		at := file + ":" + strconv.Itoa(n) + ": "
		i := strings.Index(says, at)
		if i < 0 || !strings.Contains(says, ": "+key+": ") {
			t.Errorf("%s%s is not in the error", at, key)
		}
		parts := strings.Split(key, ".")
		path := ""
		for _, part := range parts {
			if next := keys().child(path, part); next != "" {
				path = next
			}
		}
		delete(all, path)
	}
	if len(all) > 0 {
		t.Errorf("not in %s: %s", refusedKeys, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	if t.Failed() {
		t.Log(says)
	}
}
