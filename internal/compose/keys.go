package compose

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// keyTable is the allow-list. It has every key of the Compose specification with its class.
//
//go:embed keys.txt
var keyTable string

// class is how a sandbox treats a key. The comment in keys.txt explains the classes.
type class string

const (
	classOK          class = "ok"
	classChecked     class = "checked"
	classUnsafe      class = "unsafe"
	classUnsupported class = "unsupported"
	classIgnored     class = "ignored"
)

// verdict is a line of keys.txt.
type verdict struct {
	class class
	why   string
}

// table is the parsed keys.txt. The keys of verdicts are paths; above holds all proper prefixes of these paths.
type table struct {
	verdicts map[string]verdict
	above    map[string]bool
}

var keys = sync.OnceValue(func() table {
	t := table{verdicts: map[string]verdict{}, above: map[string]bool{}}
	for line := range strings.Lines(keyTable) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		path := fields[0]
		t.verdicts[path] = verdict{class: class(fields[1]), why: strings.Join(fields[2:], " ")}
		for i := strings.LastIndexByte(path, '.'); i >= 0; i = strings.LastIndexByte(path[:i], '.') {
			t.above[path[:i]] = true
		}
	}
	return t
})

// child returns the path in the table of a key below path, or "" if the table has none.
func (t table) child(path, key string) string {
	prefix := path + "."
	if path == "" {
		prefix = ""
	}
	if _, ok := t.verdicts[prefix+key]; ok {
		return prefix + key
	}
	if t.above[prefix+"*"] {
		return prefix + "*"
	}
	return ""
}

// keys checks all keys below a value of the loaded files against the table. at is the place of the value in the files,
// path its path in the table.
func (c *checking) keys(path string, at []string, value any) {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			c.keys(path, append(slices.Clip(at), fmt.Sprint(i)), item)
		}
	case map[string]any:
		if path != "" && !keys().above[path] {
			return // its keys are names: labels, variables, options
		}
		named := keys().above[path+".*"] // a service may have the name of an extension
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if !named && (strings.HasPrefix(key, "x-") || key == "#extensions") {
				continue
			}
			if len(at) != 1 || c.uses(at[0], key) {
				c.key(keys().child(path, key), append(slices.Clip(at), key), value[key])
			}
		}
	}
}

func (c *checking) key(path string, at []string, value any) {
	v, ok := keys().verdicts[path]
	switch {
	case path == "":
		c.refuse(at, "this key is not known to be harmless")
	case v.class == classIgnored:
	case v.class == classUnsafe:
		if !empty(value) {
			c.unsafe(at, text(value), v.why)
		}
	case v.class == classUnsupported:
		if !empty(value) {
			c.refuse(at, "cannot be honored: %s", v.why)
		}
	case ok || keys().above[path]:
		c.keys(path, at, value)
	}
}

// uses reports whether the started project has the named service, network, volume, secret or config.
func (c *checking) uses(kind, name string) bool {
	ok := true
	switch kind {
	case "services":
		_, ok = c.as.Services[name]
	case "networks":
		_, ok = c.as.Networks[name]
	case "volumes":
		_, ok = c.as.Volumes[name]
	case "secrets":
		_, ok = c.as.Secrets[name]
	case "configs":
		_, ok = c.as.Configs[name]
	}
	return ok
}

// empty reports whether a value is null, false, 0 or empty.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case int:
		return value == 0
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// text formats a value for a message. Of a mapping it includes only the source of a mount or device.
func text(value any) string {
	switch value := value.(type) {
	case map[string]any:
		source, _ := value["source"].(string)
		return source
	case []any:
		var all []string
		for _, item := range value {
			if value := text(item); value != "" {
				all = append(all, value)
			}
		}
		return strings.Join(all, ", ")
	}
	return fmt.Sprint(value)
}
