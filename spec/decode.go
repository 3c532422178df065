package spec

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxProblems is how many problems of one file are listed.
const maxProblems = 20

// decoder walks a document beside the Go type it is read into, and goes on after a problem. Where it
// follows an alias it descends in the type as well, so that no document makes it walk for long.
type decoder struct {
	file     string
	problems []*Problem
	more     int            // problems beyond maxProblems
	lines    map[string]int // of the keys of structs that are there and not null, by their paths
}

func (d *decoder) problem(line int, path, wanted, found, hint string) {
	if len(d.problems) == maxProblems {
		d.more++
		return
	}
	d.problems = append(d.problems, &Problem{File: d.file, Line: line, Path: path, Wanted: wanted, Found: found, Hint: hint})
}

// wrong notes that n is not what was wanted.
func (d *decoder) wrong(n *yaml.Node, path, wanted string) {
	d.problem(n.Line, path, wanted, found(n), "")
}

// value reads n into v. Null leaves v alone.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, f form) {
	if n = target(n); isNull(n) {
		return
	}
	switch into := v.Addr().Interface().(type) {
	case *Mounts:
		*into = d.mounts(n, path)
		return
	case *Ports:
		*into = d.ports(n, path)
		return
	case *map[string]string:
		*into = d.variables(n, path)
		return
	case *[]string:
		*into = d.texts(n, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, path, v.Elem(), f)
	case reflect.Struct:
		d.fields(n, path, v)
	default:
		d.scalar(scalar{n}, path, v, f)
	}
}

func (d *decoder) scalar(s scalar, path string, v reflect.Value, f form) {
	switch {
	case v.Kind() == reflect.Bool:
		if s.Tag != "!!bool" || s.Decode(v.Addr().Interface()) != nil {
			d.wrong(s.Node, path, "true or false")
		}
	case s.text() && !f.takes(s.Value):
		d.wrong(s.Node, path, f.what())
	case f.parse != nil:
		x := f.parse(s)
		if x == nil {
			d.wrong(s.Node, path, f.what())
			return
		}
		v.Set(reflect.ValueOf(x))
	default:
		text, _ := d.text(s, path, f.what())
		v.SetString(text)
	}
}

// text reads a text.
func (d *decoder) text(s scalar, path, wanted string) (string, bool) {
	switch {
	case strings.ContainsRune(s.Value, 0):
		d.problem(s.Line, path, wanted, "a NUL byte", "")
	case s.text():
		return s.Value, true
	case s.Kind == yaml.ScalarNode && !isNull(s.Node):
		d.problem(s.Line, path, wanted, found(s.Node), "write it in quotes")
	default:
		d.wrong(s.Node, path, wanted)
	}
	return "", false
}

func (d *decoder) texts(n *yaml.Node, path string) []string {
	list := []string{}
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, path, "a list")
		return nil
	}
	for i, item := range n.Content {
		if text, ok := d.text(scalar{target(item)}, fmt.Sprintf("%s[%d]", path, i), "text"); ok {
			list = append(list, text)
		}
	}
	return list
}

// entry is one key of a mapping, and what it leads to.
type entry struct {
	key   string
	path  string
	line  int // the key's
	value *yaml.Node
}

// entries are those of a mapping, but for keys that are no text and the second of what is there twice.
func (d *decoder) entries(n *yaml.Node, path string) []entry {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, path, "a mapping")
		return nil
	}
	var entries []entry
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := target(n.Content[i])
		if key.Kind != yaml.ScalarNode || isNull(key) {
			d.problem(n.Content[i].Line, path, "a key", found(key), "")
			continue
		}
		e := entry{key: key.Value, path: join(path, short(key.Value)), line: n.Content[i].Line, value: target(n.Content[i+1])}
		if line, twice := first[e.key]; twice {
			d.problem(e.line, e.path, "this key once", fmt.Sprintf("it on line %d too", line), "")
			continue
		}
		first[e.key] = e.line
		entries = append(entries, e)
	}
	return entries
}

// fields reads a mapping into a struct, by the yaml, form and required tags of its fields.
func (d *decoder) fields(n *yaml.Node, path string, v reflect.Value) {
	type field struct {
		reflect.StructField
		value reflect.Value
		there bool
	}
	fields := map[string]*field{}
	var known []string
	for i := range v.NumField() {
		f := &field{StructField: v.Type().Field(i), value: v.Field(i)}
		if key := f.Tag.Get("yaml"); key != "-" {
			fields[key] = f
			known = append(known, key)
		}
	}
	for _, e := range d.entries(n, path) {
		f := fields[e.key]
		if f == nil {
			wanted, hint := "one of the keys "+alternatives(known), ""
			if near := nearest(e.key, known); near != "" {
				wanted, hint = "a known key", "did you mean "+near+"?"
			}
			d.problem(e.line, e.path, wanted, fmt.Sprintf("%q", short(e.key)), hint)
			continue
		}
		if f.there = !isNull(e.value); f.there {
			d.lines[e.path] = e.line
		}
		d.value(e.value, e.path, f.value, forms[f.Tag.Get("form")])
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, key := range known {
		if f := fields[key]; !f.there && f.Tag.Get("required") != "" {
			d.problem(n.Line, join(path, key), forms[f.Tag.Get("form")].what(), nothing, "")
		}
	}
}

// variables reads a mapping of names to texts. No problem shows what a value is.
func (d *decoder) variables(n *yaml.Node, path string) map[string]string {
	if n.Kind != yaml.MappingNode {
		d.problem(n.Line, path, "a mapping", kind(n), "")
		return nil
	}
	vars := map[string]string{}
	for _, e := range d.entries(n, path) {
		name := forms["variable"]
		switch s := (scalar{e.value}); {
		case !name.takes(e.key):
			d.problem(e.line, path, name.what(), "one that is empty or has '=' in it", "write NAME: VALUE")
		case strings.ContainsRune(e.key, 0):
			d.problem(e.line, path, name.what(), "a NUL byte", "")
		case s.text() && strings.ContainsRune(s.Value, 0):
			d.problem(s.Line, e.path, "text", "a NUL byte", "")
		case s.text():
			vars[e.key] = s.Value
		case s.Kind == yaml.ScalarNode:
			d.problem(s.Line, e.path, "text", kind(e.value), "write it in quotes")
		default:
			d.problem(s.Line, e.path, "text", kind(e.value), "")
		}
	}
	return vars
}

// mountTarget is the long form of a mount's container side.
type mountTarget struct {
	// Bind is the absolute path in the container.
	Bind string `yaml:"bind" form:"path" required:"true"`
	// Mode is ro (also when absent) for read-only or rw for writable.
	Mode string `yaml:"mode" form:"mode"`
}

func (d *decoder) mounts(n *yaml.Node, path string) Mounts {
	var mounts Mounts
	for _, e := range d.entries(n, path) {
		m := mountTarget{}
		switch s := (scalar{e.value}); {
		case !forms["host path"].takes(e.key) || strings.ContainsRune(e.key, 0):
			d.problem(e.line, path, forms["host path"].what(), fmt.Sprintf("%q", short(e.key)), "")
		case e.value.Kind == yaml.MappingNode:
			d.fields(e.value, e.path, reflect.ValueOf(&m).Elem())
		case !s.text() || !forms["target"].takes(s.Value) || strings.ContainsRune(s.Value, 0):
			d.wrong(e.value, e.path, forms["target"].what()+", or {bind: PATH, mode: ro or rw}")
		default:
			m.Bind, m.Mode, _ = strings.Cut(s.Value, ":")
		}
		mounts = append(mounts, m.mount(e.key))
	}
	return mounts
}

func (d *decoder) ports(n *yaml.Node, path string) Ports {
	var ports Ports
	for _, e := range d.entries(n, path) {
		host, err := strconv.ParseUint(e.key, 10, 16)
		if err != nil || !forms["host port"].takes(e.key) {
			d.problem(e.line, path, forms["host port"].what(), fmt.Sprintf("%q", short(e.key)), "")
			continue
		}
		values := []*yaml.Node{e.value}
		if host == 0 && e.value.Kind == yaml.SequenceNode {
			values = e.value.Content
		}
		for _, value := range values {
			value = target(value)
			port, ok := scalar{value}.integer()
			if !ok || port < 1 || port > 65535 {
				d.wrong(value, e.path, "a port from 1 to 65535")
				continue
			}
			ports = append(ports, Port{Host: uint16(host), Container: uint16(port)})
		}
	}
	return ports
}

// target is n, or what n is an alias of.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
