package spec

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestParse_beyondTypes(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"placeholder": {
			"type: local\ncommands:\n  entry_file: \"{entry}.py\"", `env.yaml:3: commands.entry_file: wanted text with no placeholder but {entry_file}, found "{entry}.py"`,
		},
		"second placeholder": {"type: local\ncommands: {entry_file: \"{entry_file}.{ext}\"}", `found "{entry_file}.{ext}"`},
		"number":             {"type: local\ncommands: {entry_file: 7}", "found 7 (write it in quotes)"},
		"other braces":       {"type: local\ncommands: {entry_file: \"{}{ }{1}{entry_file}\"}", ""},
		"glob":               {"type: local\nsnapshot:\n  keep_globs:\n  - a\n  - '[a'", `env.yaml:5: snapshot.keep_globs[1]: wanted a relative glob such as build or **/*.pyc, found "[a"`},
		"folder":             {"type: local\nsnapshot: {ignore_globs: [build/]}", `env.yaml:2: snapshot.ignore_globs[0]: wanted a relative glob such as build or **/*.pyc, found "build/"`},
		"globs":              {"type: local\nsnapshot: {keep_globs: [], ignore_globs: ['**/{a,b}*.[ch]', .git]}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("env.yaml", []byte(c.text))
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestEnvironment_Validate(t *testing.T) {
	good := Environment{Type: TypeLocal, Commands: Commands{EntryFile: "{entry_file}.py"}, Snapshot: Snapshot{KeepGlobs: []string{"a"}, Compression: "bz2"}}
	if err := errors.Join(good.Validate(), (&Environment{}).Validate()); err != nil {
		t.Error(err)
	}
	bad := Environment{
		Commands: Commands{EntryFile: "{entry}.py"}, Snapshot: Snapshot{KeepGlobs: []string{"a", "/a"}, IgnoreGlobs: []string{"[a"}, Compression: "rar"},
	}
	err := bad.Validate()
	for _, says := range []string{`entry_file: wanted text`, `keep_globs[1]: wanted`, `ignore_globs[0]: wanted`, `compression: wanted`} {
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// fill sets everything that v holds, with one element in each list and mapping.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	}
}

// shared returns the path of a map, slice or pointer that both hold, or "".
func shared(a, b reflect.Value, path string) string {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if s := shared(a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name); s != "" {
				return s
			}
		}
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.Pointer() == b.Pointer() {
			return path
		}
		if a.Kind() == reflect.Pointer {
			return shared(a.Elem(), b.Elem(), path)
		}
	}
	return ""
}

func TestEnvironment_Clone(t *testing.T) {
	e := &Environment{}
	fill(reflect.ValueOf(e).Elem())
	c := e.Clone()
	if !reflect.DeepEqual(c, e) {
		t.Errorf("got %+v, want %+v", c, e)
	}
	if s := shared(reflect.ValueOf(e).Elem(), reflect.ValueOf(c).Elem(), "Environment"); s != "" {
		t.Errorf("%s is shared", s)
	}
	none := (&Environment{Snapshot: Snapshot{KeepGlobs: []string{}}}).Clone()
	if none.Snapshot.KeepGlobs == nil || none.Docker.MountWorkspace != nil || none.Docker.Build != nil {
		t.Errorf("got %+v", none)
	}
}
