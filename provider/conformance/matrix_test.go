package conformance

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = `{
  "fake": {
    "a/one": "kept"
  },
  "local": {
    "a/one": "no: a <b>",
    "a/two": "kept"
  }
}
`

func sampleMatrix(t *testing.T) matrix {
	t.Helper()
	m, err := parseMatrix([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMatrix_roundTrip(t *testing.T) {
	got, err := sampleMatrix(t).json()
	if err != nil || string(got) != sample {
		t.Errorf("parsing and formatting again changed it: %v\n%s", err, got)
	}
}

func TestParseMatrix_invalid(t *testing.T) {
	for name, bad := range map[string]string{
		"empty":        "",
		"no JSON":      "| promise |",
		"conflict":     "<<<<<<< HEAD\n" + sample,
		"other values": `{"fake": {"a/one": true}}`,
		"other cell":   `{"fake": {"a/one": "yes"}}`,
		"empty cell":   `{"fake": {"a/one": ""}}`,
	} {
		if _, err := parseMatrix([]byte(bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMatrix_with(t *testing.T) {
	m := sampleMatrix(t)
	names := []string{"a/zero", "a/one"}
	for _, c := range []struct {
		name                     string
		column                   string
		cells                    map[string]string
		whole                    bool
		promise, group, want     string
		promise2, column2, want2 string
	}{
		{"other columns stay", "fake", map[string]string{"a/one": "no: x\ny"}, true, "a/one", "local", "no: a <b>", "a/one", "fake", "no: x y"},
		{"whole run clears other cells", "local", map[string]string{"a/zero": kept}, true, "a/one", "local", notRun, "a/zero", "local", kept},
		{"partial run keeps other cells", "local", map[string]string{"a/zero": kept}, false, "a/one", "local", "no: a <b>", "a/two", "local", kept},
		{"removed promise loses its cells", "fake", nil, true, "a/two", "local", "", "a/zero", "fake", notRun},
		{"new column", "docker", map[string]string{"a/one": kept}, true, "a/one", "docker", kept, "a/one", "fake", kept},
		{"new column of a partial run", "docker", map[string]string{"a/one": kept}, false, "a/one", "docker", kept, "a/two", "local", kept},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := m.with(c.column, names, c.cells, c.whole)
			if v := got[c.group][c.promise]; v != c.want {
				t.Errorf("%s, %s: %q, want %q", c.promise, c.group, v, c.want)
			}
			if v := got[c.column2][c.promise2]; v != c.want2 {
				t.Errorf("%s, %s: %q, want %q", c.promise2, c.column2, v, c.want2)
			}
			if diff := got.differences(c.column, names, c.cells, c.whole); len(diff) > 0 {
				t.Errorf("an updated matrix differs: %q", diff)
			}
			if again, err := m.json(); err != nil || string(again) != sample {
				t.Errorf("the original changed: %v\n%s", err, again)
			}
		})
	}
}

func TestMatrix_differences(t *testing.T) {
	m := sampleMatrix(t)
	names := []string{"a/one", "a/new"}
	for _, c := range []struct {
		column string
		cells  map[string]string
		whole  bool
		want   []string
	}{
		{"docker", nil, true, []string{`no column "docker"`}},
		{"local", map[string]string{"a/one": kept}, true, []string{`"a/two" is not a promise`, `"a/one" has the cell "no: a <b>"`, `"a/new" is missing`}},
		{"fake", map[string]string{"a/one": kept}, false, []string{`"a/new" is missing`}},
	} {
		diff := m.differences(c.column, names, c.cells, c.whole)
		if len(diff) != len(c.want) {
			t.Errorf("%s: %q, want %q", c.column, diff, c.want)
			continue
		}
		for i, w := range c.want {
			if !strings.Contains(diff[i], w) {
				t.Errorf("%s: %q does not contain %q", c.column, diff[i], w)
			}
		}
	}
}

// Several packages update the file, one after the other.
func TestMatrix_write(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := sampleMatrix(t).write(root); err != nil {
		t.Fatal(err)
	}
	names := []string{"a/one", "a/two"}
	for _, column := range []string{"docker", "fake"} {
		m, err := readMatrix(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.with(column, names, map[string]string{"a/one": kept, "a/two": kept}, true).write(root); err != nil {
			t.Fatal(err)
		}
	}
	m, err := readMatrix(root)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.columns(); !slices.Equal(got, []string{"docker", "fake", "local"}) || m["local"]["a/one"] != "no: a <b>" || m["docker"]["a/two"] != kept {
		t.Errorf("got %v", m)
	}
	page, err := os.ReadFile(filepath.Join(root, pageFile))
	if err != nil || string(page) != m.page() {
		t.Errorf("%v, page %s", err, page)
	}
}

func TestMatrix_page(t *testing.T) {
	m := matrix{
		"fake":        {"a/one": kept, "a/two": kept, "b/one": kept},
		"local":       {"a/one": "no: broken", "a/two": "no: broken", "b/one": kept},
		"local root":  {"a/one": "no: broken", "a/two": "no: broken", "b/one": "no: root"},
		"remote":      {"a/one": notRun, "b/one": "no: root"},
		"remote root": {"a/one": "no: root", "a/two": kept, "b/one": kept},
	}
	const want = `
## Columns
| column      | kept       | exceptions   |
|-------------|------------|--------------|
| fake        | 3 of 3     |              |
| local       | 1 of 3     | 1            |
| local root  | 0 of 3     | 1, 2         |
| remote      | 0 of 3, 2 not run | 2            |
| remote root | 2 of 3     | 3            |

## Exceptions 1
- broken:
  - all 2 of a

## Exceptions 2
- root:
  - b/one

## Exceptions 3
- root:
  - a/one

## All promises
- a: one; two.
- b: one.
`
	if got := strings.TrimPrefix(m.page(), pageHead); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Most runs test only some columns, so a promise that never ran in a column would be only one cell of many.
func TestPromises_complete(t *testing.T) {
	m := readPromises(t)
	columns := 0
	for _, names := range [][]string{names(promises()), providerNames()} {
		slices.Sort(names)
		some := m.having(names)
		columns += len(some)
		for column, cells := range some {
			for _, promise := range names {
				if text := cells[promise]; text == "" || text == notRun {
					t.Errorf("%q never ran in column %q: see CONTRIBUTING.md", promise, column)
				}
			}
		}
		if got := some.promises(); !slices.Equal(got, names) {
			t.Errorf("%s has %d promises, which are not the suite's %d", matrixFile, len(got), len(names))
		}
	}
	if columns != len(m) {
		t.Errorf("%s has %d columns, want %d", matrixFile, len(m), columns)
	}
}

// With -update-promises, the test rewrites the page: after a merge of docs/promises.json, for example.
func TestPromisesPage_complete(t *testing.T) {
	m := readPromises(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if *updatePromises {
		if err := m.write(root); err != nil {
			t.Fatal(err)
		}
	}
	text, err := m.json()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]byte{matrixFile: text, pageFile: []byte(m.page())} {
		got, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s gives: run this test with -update-promises", file, matrixFile)
		}
	}
}

func readPromises(t *testing.T) matrix {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	m, err := readMatrix(root)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Names are short enough for a test's output and a line of the page.
func TestPromises_names(t *testing.T) {
	const longest = 45
	for _, promise := range append(names(promises()), providerNames()...) {
		_, name, _ := strings.Cut(promise, "/")
		if len(name) > longest || strings.Contains(name, "/") {
			t.Errorf("%q: name longer than %d characters, or with a slash", promise, longest)
		}
	}
}
