package journal

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lineTypes maps kinds to lines.
var lineTypes = map[string]Line{
	"phase": &Phase{}, "network": &Network{}, "sandbox": &Sandbox{}, "command": &Command{}, "end": &End{}, "file": &File{}, "lost": &Lost{},
}

// fieldsOf collects the names of a line's own fields and of nested objects.
func fieldsOf(t reflect.Type, fields map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[Head]().PkgPath() {
		return
	}
	for f := range slices.Values(reflect.VisibleFields(t)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			fields[name] = true
			if f.Type != reflect.TypeFor[*Error]() { // the same in all lines
				fieldsOf(f.Type, fields)
			}
		}
	}
}

// docs/journal.md must have a table for each kind of line that names exactly its fields. Each line of its example
// must be a line that can be written.
func TestLines_documented(t *testing.T) {
	page, err := os.ReadFile("../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	common := map[string]bool{}
	fieldsOf(reflect.TypeFor[Head](), common)
	sections := regexp.MustCompile("(?m)^### `([a-z]+)`: ").Split(string(page), -1)
	kinds := regexp.MustCompile("(?m)^### `([a-z]+)`: ").FindAllStringSubmatch(string(page), -1)
	documented := func(section string) map[string]bool {
		names := map[string]bool{}
		for row := range strings.Lines(section) {
			cells := strings.Split(row, "|")
			if len(cells) < 4 || strings.HasPrefix(row, "| field") {
				continue
			}
			for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				names[name[1]] = true
			}
			for _, prefix := range []string{"each with ", "what it used: "} { // fields of nested objects
				if _, rest, ok := strings.Cut(cells[2], prefix); ok {
					for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(rest, -1) {
						names[name[1]] = true
					}
				}
			}
		}
		return names
	}
	if got := documented(sections[0]); !maps.Equal(got, common) {
		t.Errorf("the fields of all lines are %v, the page has %v", common, got)
	}
	seen := map[string]bool{}
	for i, kind := range kinds {
		line, ok := lineTypes[kind[1]]
		if !ok {
			t.Errorf("there is no line of kind %s", kind[1])
			continue
		}
		seen[kind[1]] = true
		want := map[string]bool{}
		fieldsOf(reflect.TypeOf(line), want)
		maps.DeleteFunc(want, func(name string, _ bool) bool { return common[name] })
		if got := documented(sections[i+1]); !maps.Equal(got, want) {
			t.Errorf("%s: the fields are %v, the page has %v", kind[1], want, got)
		}
	}
	if len(seen) != len(lineTypes) {
		t.Errorf("the page has %v", seen)
	}

	shown := map[string]bool{}
	for text := range bytes.Lines(page) {
		if !bytes.HasPrefix(text, []byte("{")) {
			continue
		}
		var head Head
		if err := json.Unmarshal(text, &head); err != nil {
			t.Fatal(err)
		}
		shown[head.Kind] = true
		line := reflect.New(reflect.TypeOf(lineTypes[head.Kind]).Elem()).Interface().(Line)
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(line); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		var again bytes.Buffer
		Log(New(&again, nil).Logger, line)
		if timeless(again.Bytes()) != timeless(text) {
			t.Errorf("the line would be\n%s, and is\n%s", &again, text)
		}
	}
	if len(shown) != len(lineTypes)-1 { // all except Lost
		t.Errorf("the example shows %v", shown)
	}
}
