package strict

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxProblems is the maximum number of problems that are listed for a file, and maxEach that of one kind.
	MaxProblems = 20
	maxEach     = 3
	// maxFound is the number of problems after which Stop ends the reading of a file.
	maxFound = 10_000
)

// Decoder walks a document together with the Go type that it is read into. It continues after a problem.
// Following an alias also descends in the type, so the walk is bounded for every document.
//
// A field's yaml tag is its key, or "-" or nothing for no key, or ",inline" for the keys of an embedded struct.
// Its form tag names a form. A field with a required tag must be present.
type Decoder struct {
	File  string          // name of the document in problems
	Forms map[string]Form // by name
	// Types read values of types that the decoder does not read itself. The field is set to the result, unless
	// that is nil.
	Types map[reflect.Type]func(d *Decoder, n *yaml.Node, path string) any
	// MaxAliased bounds the number of values that are read below aliases. Lists of aliases to lists of aliases
	// could otherwise make it arbitrarily large. Keys count too, and mappings and lists count twice. 0 means
	// 1,000,000.
	MaxAliased int

	Lines map[string]int // lines of struct keys that are present and not null, by path

	problems []*Problem
	kinds    map[string][]*Problem // those of problems, by kind
	found    int                   // number of all problems
	more     int                   // number of problems of kinds beyond MaxProblems
	stopped  bool                  // Stop has returned true
	aliases  int                   // number of aliases being followed
	values   int                   // number of values read below aliases
	exceeded bool                  // MaxAliased was exceeded, and this is reported
}

// maxAliased is the default of Decoder.MaxAliased.
const maxAliased = 1_000_000

// index matches the position in a list in a path.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// Problem records a problem. One that differs from an earlier one only by its line, its position in lists and the found
// value is of the same kind.
func (d *Decoder) Problem(line int, path, wanted, found, hint string) {
	d.found++
	kind := index.ReplaceAllString(path, "[]") + "\x00" + wanted
	like := d.kinds[kind]
	switch {
	case len(like) == maxEach:
		like[maxEach-1].count(line)
		return
	case len(d.problems) == MaxProblems:
		d.more++
		return
	case d.kinds == nil:
		d.kinds = map[string][]*Problem{}
	}
	p := &Problem{File: d.File, Line: line, Path: path, Wanted: wanted, Found: found, Hint: hint}
	d.kinds[kind], d.problems = append(like, p), append(d.problems, p)
}

// Problems returns the number of problems so far.
func (d *Decoder) Problems() int { return d.found }

// Within reports whether a listed problem is of the value at a path or below it.
func (d *Decoder) Within(path string) bool {
	return slices.ContainsFunc(d.problems, func(p *Problem) bool {
		rest, below := strings.CutPrefix(p.Path, path)
		return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Stop reports whether there are so many problems that the caller reads no further, which Err says.
func (d *Decoder) Stop() bool {
	d.stopped = d.stopped || d.found > maxFound
	return d.stopped
}

// Wrong records that n is not the wanted value.
func (d *Decoder) Wrong(n *yaml.Node, path, wanted string) {
	d.Problem(n.Line, path, wanted, DescribeValue(n), "")
}

// Value reads n into v. Null leaves v unchanged.
func (d *Decoder) Value(n *yaml.Node, path string, v reflect.Value, f Form) {
	if n.Kind == yaml.AliasNode {
		d.aliases++
		defer func() { d.aliases-- }()
	}
	if n = Target(n); isNull(n) {
		return
	}
	if d.aliases > 0 && n.Kind != yaml.ScalarNode {
		d.values += 1 + len(n.Content) // texts are counted with their parent
	}
	if most := cmp.Or(d.MaxAliased, maxAliased); d.values > most {
		if !d.exceeded && d.aliases > 0 {
			d.exceeded = true
			d.Problem(n.Line, path, fmt.Sprintf("at most %d values below aliases", most), "more", "")
		}
		return
	}
	if read := d.Types[v.Type()]; read != nil {
		if x := read(d, n, path); x != nil {
			v.Set(reflect.ValueOf(x))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.Value(n, path, v.Elem(), f)
	case reflect.Struct:
		d.Fields(n, path, v)
	case reflect.Slice:
		d.list(n, path, v, f)
	case reflect.Map:
		if into, ok := v.Addr().Interface().(*map[string]string); ok {
			*into = d.variables(n, path, f)
			return
		}
		d.mapping(n, path, v, f)
	default:
		d.scalar(n, path, v, f)
	}
}

// list reads a list of texts of a form, of structs, or of pointers to structs.
func (d *Decoder) list(n *yaml.Node, path string, v reflect.Value, f Form) {
	if n.Kind != yaml.SequenceNode {
		d.Wrong(n, path, "a list")
		return
	}
	wanted := "a mapping"
	if v.Type().Elem().Kind() == reflect.String {
		wanted = f.What()
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isNull(Target(item)) {
			d.Wrong(Target(item), at, wanted)
			continue
		}
		d.Value(item, at, v.Index(i), f)
	}
}

// mapping reads a mapping to structs, or to pointers to structs. The form is that of keys. For null, a pointer is to
// the zero value; a struct must not be null.
func (d *Decoder) mapping(n *yaml.Node, path string, v reflect.Value, f Form) {
	v.Set(reflect.MakeMap(v.Type()))
	elem := v.Type().Elem()
	for _, e := range d.Entries(n, path) {
		switch {
		case !f.Takes(e.Key):
			d.Problem(e.Line, path, f.What(), fmt.Sprintf("%q", Short(e.Key)), "")
			continue
		case f.Pattern != nil && strings.ContainsRune(e.Key, 0):
			d.Problem(e.Line, path, f.What(), "a NUL byte", "")
			continue
		}
		value := reflect.New(elem).Elem()
		if elem.Kind() == reflect.Pointer {
			value.Set(reflect.New(elem.Elem()))
			d.Value(e.node, e.Path, value.Elem(), Form{})
		} else if d.Value(e.node, e.Path, value, Form{}); isNull(e.Value) {
			d.Wrong(e.Value, e.Path, "a value")
		}
		v.SetMapIndex(reflect.ValueOf(e.Key), value)
	}
}

func (d *Decoder) scalar(n *yaml.Node, path string, v reflect.Value, f Form) {
	switch {
	case v.Kind() == reflect.Bool:
		if n.Tag != "!!bool" || n.Decode(v.Addr().Interface()) != nil {
			d.Wrong(n, path, "true or false")
		}
	case IsText(n) && !f.Takes(n.Value):
		d.Wrong(n, path, f.What())
	case f.Parse != nil:
		x := f.Parse(n)
		if x == nil {
			d.Wrong(n, path, f.What())
			return
		}
		v.Set(reflect.ValueOf(x).Convert(v.Type()))
	default:
		text, _ := d.Text(n, path, f.What())
		v.SetString(text)
	}
}

// Text reads a text. Ok is false if n is another value, which is recorded as a problem.
func (d *Decoder) Text(n *yaml.Node, path, wanted string) (string, bool) {
	hint := quotes
	if isNull(n) {
		hint = ""
	}
	return d.text(n, path, wanted, DescribeValue(n), hint)
}

// quotes is the hint for a value that would be text if it were quoted.
const quotes = "write it in quotes"

// text is like Text. Found describes another value, and hint is given if that is a scalar.
func (d *Decoder) text(n *yaml.Node, path, wanted, found, hint string) (string, bool) {
	switch {
	case strings.ContainsRune(n.Value, 0):
		found, hint = "a NUL byte", ""
	case IsText(n):
		return n.Value, true
	case n.Kind != yaml.ScalarNode:
		hint = ""
	}
	d.Problem(n.Line, path, wanted, found, hint)
	return "", false
}

// Texts reads a list of texts.
func (d *Decoder) Texts(n *yaml.Node, path string) (texts []string) {
	d.list(n, path, reflect.ValueOf(&texts).Elem(), Form{})
	return texts
}

// Entry is a key of a mapping and its value.
type Entry struct {
	Key   string
	Path  string
	Line  int // line of the key
	Value *yaml.Node

	node *yaml.Node // the value as written, which may be an alias
}

// Entries returns the entries of a mapping. Keys that are not text and duplicate keys are recorded as problems
// and left out.
func (d *Decoder) Entries(n *yaml.Node, path string) []Entry {
	if n.Kind != yaml.MappingNode {
		d.Wrong(n, path, "a mapping")
		return nil
	}
	var entries []Entry
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := Target(n.Content[i])
		if key.Kind != yaml.ScalarNode || isNull(key) {
			d.Problem(n.Content[i].Line, path, "a key", DescribeValue(key), "")
			continue
		}
		e := Entry{Key: key.Value, Path: join(path, Short(key.Value)), Line: n.Content[i].Line, Value: Target(n.Content[i+1]), node: n.Content[i+1]}
		if line, twice := first[e.Key]; twice {
			d.Problem(e.Line, e.Path, "this key once", fmt.Sprintf("it on line %d too", line), "")
			continue
		}
		first[e.Key] = e.Line
		entries = append(entries, e)
	}
	return entries
}

// Fields reads a mapping into a struct, by the yaml, form and required tags of its fields.
func (d *Decoder) Fields(n *yaml.Node, path string, v reflect.Value) {
	type field struct {
		reflect.StructField
		value reflect.Value
		there bool
	}
	fields := map[string]*field{}
	var known []string
	for _, f := range reflect.VisibleFields(v.Type()) {
		if key := Key(f); key != "" {
			fields[key] = &field{f, v.FieldByIndex(f.Index), false}
			known = append(known, key)
		}
	}
	for _, e := range d.Entries(n, path) {
		f := fields[e.Key]
		if f == nil {
			wanted, hint := "one of the keys "+Alternatives(known), ""
			if near := nearest(e.Key, known); near != "" {
				wanted, hint = "a known key", "did you mean "+near+"?"
			}
			d.Problem(e.Line, e.Path, wanted, fmt.Sprintf("%q", Short(e.Key)), hint)
			continue
		}
		if f.there = !isNull(e.Value); f.there {
			d.Lines[e.Path] = e.Line
		}
		d.Value(e.node, e.Path, f.value, d.Forms[f.Tag.Get("form")])
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, key := range known {
		if f := fields[key]; !f.there && f.value.IsZero() && f.Tag.Get("required") != "" {
			d.Problem(n.Line, join(path, key), d.Forms[f.Tag.Get("form")].What(), Nothing, "")
		}
	}
}

// Key returns the key that a field is read from, or "" if there is none.
func Key(f reflect.StructField) string {
	if key := f.Tag.Get("yaml"); key != "-" && key != ",inline" {
		return key
	}
	return ""
}

// variable is the form of variable names.
var variable = Form{Wanted: "a variable's name", Pattern: regexp.MustCompile(`^[^=]+$`)}

// variables reads a mapping to texts. The keys are names of variables, unless a form defines them otherwise.
// Problems never show a value.
func (d *Decoder) variables(n *yaml.Node, path string, f Form) map[string]string {
	if n.Kind != yaml.MappingNode {
		d.Problem(n.Line, path, "a mapping", kind(n), "")
		return nil
	}
	vars := map[string]string{}
	for _, e := range d.Entries(n, path) {
		name, wrong, hint := variable, "an empty name or one with '='", "write NAME: VALUE"
		if f.Pattern != nil {
			name, wrong, hint = f, fmt.Sprintf("%q", Short(e.Key)), ""
		}
		switch {
		case !name.Takes(e.Key):
			d.Problem(e.Line, path, name.What(), wrong, hint)
		case strings.ContainsRune(e.Key, 0):
			d.Problem(e.Line, path, name.What(), "a NUL byte", "")
		default:
			vars[e.Key], _ = d.text(e.Value, e.Path, "text", kind(e.Value), quotes)
		}
	}
	return vars
}

// Target returns n, or the node that n is an alias of.
func Target(n *yaml.Node) *yaml.Node {
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
