package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const doc = `# Promises

Read this first.

| promise | fake | local         |
|---------|------|---------------|
| a/one   | kept | no: a \| b    |
| a/two   |      | kept          |

The end.
`

func TestTable_roundTrip(t *testing.T) {
	head, tb, foot, err := parseTable(doc)
	if err != nil {
		t.Fatal(err)
	}
	if got := tb.rows[0].cells["local"]; got != "no: a | b" {
		t.Errorf("a bar in a cell became %q", got)
	}
	again := head + tb.String() + foot
	head2, tb2, foot2, err := parseTable(again)
	if err != nil {
		t.Fatal(err)
	}
	if head2 != head || foot2 != foot || tb2.String() != tb.String() {
		t.Errorf("parsing and formatting again changed it:\n%s", again)
	}
	if !strings.HasPrefix(head, "# Promises") || !strings.Contains(foot, "The end.") {
		t.Errorf("the text around the table is lost: %q, %q", head, foot)
	}
}

func TestParseTable_invalid(t *testing.T) {
	for name, bad := range map[string]string{
		"two tables":        doc + "\n| promise | x |\n|---|---|\n",
		"no heading":        "| promise |\n",
		"other heading":     "| what | x |\n|---|---|\n",
		"a row is too long": "| promise | x |\n|---|---|\n| a | b | c |\n",
	} {
		if _, _, _, err := parseTable(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	head, tb, foot, err := parseTable("just text\n")
	if err != nil || head != "just text\n" || foot != "" || len(tb.columns) != 0 {
		t.Errorf("text without a table: got %q %v %q %v", head, tb, foot, err)
	}
}

func TestTable_with(t *testing.T) {
	_, tb, _, err := parseTable(doc)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a/zero", "a/one"}
	cell := func(tb table, promise, column string) string {
		i := slices.IndexFunc(tb.rows, func(r row) bool { return r.promise == promise })
		if i < 0 {
			return "(no row)"
		}
		return tb.rows[i].cells[column]
	}
	for _, c := range []struct {
		name                     string
		column                   string
		cells                    map[string]string
		whole                    bool
		promise, of, want        string
		promise2, column2, want2 string
	}{
		{"other columns stay", "fake", map[string]string{"a/one": "no: x\ny"}, true, "a/one", "local", "no: a | b", "a/one", "fake", "no: x y"},
		{"whole run clears other cells", "local", map[string]string{"a/zero": kept}, true, "a/one", "local", "", "a/zero", "local", kept},
		{"partial run keeps other cells", "local", map[string]string{"a/zero": kept}, false, "a/one", "local", "no: a | b", "a/two", "local", kept},
		{"removed promise loses its row", "fake", nil, true, "a/two", "local", "(no row)", "a/zero", "fake", ""},
		{"new column comes last", "docker", map[string]string{"a/one": kept}, true, "a/one", "docker", kept, "a/one", "fake", kept},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tb.with(c.column, names, c.cells, c.whole)
			if v := cell(got, c.promise, c.of); v != c.want {
				t.Errorf("%s, %s: %q, want %q", c.promise, c.of, v, c.want)
			}
			if v := cell(got, c.promise2, c.column2); v != c.want2 {
				t.Errorf("%s, %s: %q, want %q", c.promise2, c.column2, v, c.want2)
			}
			if diff := got.differences(c.column, names, c.cells, c.whole); len(diff) > 0 {
				t.Errorf("an updated table differs: %q", diff)
			}
		})
	}
}

func TestTable_differences(t *testing.T) {
	_, tb, _, err := parseTable(doc)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a/one", "a/new"}
	for _, c := range []struct {
		column string
		cells  map[string]string
		whole  bool
		want   []string
	}{
		{"docker", nil, true, []string{`no column "docker"`}},
		{"local", map[string]string{"a/one": kept}, true, []string{`"a/two" is not a promise`, `"a/one" has the cell "no: a | b"`, `"a/new" is missing`}},
		{"fake", map[string]string{"a/one": kept}, false, []string{`"a/new" is missing`}},
	} {
		diff := tb.differences(c.column, names, c.cells, c.whole)
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

// Most runs test only some columns, so a promise that never ran in a column would show only as an empty cell.
func TestPromisesPage_complete(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "promises.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, page, _, err := parseTable(string(doc))
	if err != nil {
		t.Fatal(err)
	}
	var names, rows []string
	for _, p := range promises() {
		names = append(names, p.name)
	}
	for _, r := range page.rows {
		rows = append(rows, r.promise)
		for _, column := range page.columns {
			if r.cells[column] == "" {
				t.Errorf("%q never ran in column %q: see CONTRIBUTING.md", r.promise, column)
			}
		}
	}
	if !slices.Equal(rows, names) {
		t.Errorf("the page has %d promises, which are not the suite's %d in order", len(rows), len(names))
	}
}
