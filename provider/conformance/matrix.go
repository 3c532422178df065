package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A cell is the text kept if the promise held, or an exception's reason after the prefix excepted.
const (
	kept     = "kept"
	excepted = "no: "
	notRun   = "not run"
)

// matrix is the content of docs/promises.json: cells by column, which is a provider, and promise. A promise that never
// ran in a column has the cell notRun there, or none. The columns of Run and of RunProvider have no promise in common.
type matrix map[string]map[string]string

func parseMatrix(text []byte) (matrix, error) {
	var m matrix
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	for column, cells := range m {
		for promise, text := range cells {
			if text != kept && text != notRun && !strings.HasPrefix(text, excepted) {
				return nil, fmt.Errorf("column %q, promise %q: invalid cell %q", column, promise, text)
			}
		}
	}
	return m, nil
}

// json formats the matrix with a line for each cell, sorted by column and promise.
func (m matrix) json() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(m)
	return b.Bytes(), err
}

// columns returns the names of all columns, sorted.
func (m matrix) columns() []string { return slices.Sorted(maps.Keys(m)) }

// promises returns the names of all promises with a cell, sorted.
func (m matrix) promises() []string {
	all := map[string]bool{}
	for _, cells := range m {
		for promise := range cells {
			all[promise] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// having returns the columns that have one of the promises.
func (m matrix) having(promises []string) matrix {
	some := matrix{}
	for column, cells := range m {
		if slices.ContainsFunc(promises, func(promise string) bool { return cells[promise] != "" }) {
			some[column] = cells
		}
	}
	return some
}

// cellText returns s as a cell can hold it: on one line, trimmed.
func cellText(s string) string { return strings.Join(strings.Fields(s), " ") }

// with returns a copy of the matrix with cells of one column replaced. names lists all promises. If whole is set, the
// column becomes exactly cells, and promises that are not in names are removed from all columns that have some of names.
// Otherwise, other cells stay.
func (m matrix) with(column string, names []string, cells map[string]string, whole bool) matrix {
	out := matrix{column: {}}
	for c, old := range m {
		if c != column || !whole {
			out[c] = maps.Clone(old)
		}
	}
	if whole {
		for _, cells := range out.having(names) {
			maps.DeleteFunc(cells, func(promise, _ string) bool { return !slices.Contains(names, promise) })
		}
	}
	for promise, text := range cells {
		out[column][promise] = cellText(text)
	}
	for _, name := range names {
		if out[column][name] == "" {
			out[column][name] = notRun
		}
	}
	return out
}

// differences describes where the column differs from cells. The arguments are those of with.
func (m matrix) differences(column string, names []string, cells map[string]string, whole bool) []string {
	have, ok := m[column]
	if !ok {
		return []string{fmt.Sprintf("there is no column %q", column)}
	}
	var diff []string
	known := m.having(names).promises()
	for _, promise := range known {
		if whole && !slices.Contains(names, promise) {
			diff = append(diff, fmt.Sprintf("%q is not a promise of the suite", promise))
		}
	}
	for _, name := range names {
		want, ran := cells[name]
		if !slices.Contains(known, name) {
			diff = append(diff, fmt.Sprintf("the promise %q is missing", name))
		} else if ran && have[name] != cellText(want) {
			diff = append(diff, fmt.Sprintf("%q has the cell %q, but the test's result is %q", name, have[name], cellText(want)))
		}
	}
	return diff
}
