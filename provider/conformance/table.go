package conformance

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// kept is the text in the cell of a promise that held.
const kept = "kept"

// table is the table of promises (rows) and providers (columns) in docs/promises.md.
type table struct {
	columns []string
	rows    []row
}

type row struct {
	promise string
	cells   map[string]string // by column
}

const firstHeading = "promise"

// parseTable parses the one Markdown table in doc, and returns the table and the text before and after it. If doc has
// no table, parseTable returns all of doc as head and an empty table.
func parseTable(doc string) (head string, tb table, foot string, err error) {
	lines := strings.SplitAfter(doc, "\n")
	isRow := func(l string) bool { return strings.HasPrefix(l, "|") }
	from := slices.IndexFunc(lines, isRow)
	if from < 0 {
		return doc, table{}, "", nil
	}
	to := from
	for to < len(lines) && isRow(lines[to]) {
		to++
	}
	if slices.IndexFunc(lines[to:], isRow) >= 0 {
		return "", table{}, "", fmt.Errorf("there is more than one table")
	}
	if to-from < 2 {
		return "", table{}, "", fmt.Errorf("the table has no heading")
	}
	heading := splitRow(lines[from])
	if len(heading) == 0 || heading[0] != firstHeading {
		return "", table{}, "", fmt.Errorf("the table's first column is not %q", firstHeading)
	}
	tb.columns = heading[1:]
	for _, l := range lines[from+2 : to] {
		cells := splitRow(l)
		if len(cells) != len(heading) {
			return "", table{}, "", fmt.Errorf("a row has %d cells, not %d: %s", len(cells), len(heading), l)
		}
		r := row{promise: cells[0], cells: map[string]string{}}
		for i, c := range cells[1:] {
			if c != "" {
				r.cells[tb.columns[i]] = c
			}
		}
		tb.rows = append(tb.rows, r)
	}
	return strings.Join(lines[:from], ""), tb, strings.Join(lines[to:], ""), nil
}

// splitRow splits a row into cells at its bars. "\|" stands for a bar within a cell.
func splitRow(line string) []string {
	line = strings.TrimSpace(line)
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	const bar = "\x00"
	var cells []string
	for c := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, bar), "|") {
		cells = append(cells, strings.ReplaceAll(strings.TrimSpace(c), bar, "|"))
	}
	return cells
}

// cellText returns s as a cell can hold it: on one line, trimmed.
func cellText(s string) string { return strings.Join(strings.Fields(s), " ") }

// String formats the table as Markdown with aligned columns.
func (tb table) String() string {
	lines := [][]string{append([]string{firstHeading}, tb.columns...)}
	for _, r := range tb.rows {
		line := []string{r.promise}
		for _, c := range tb.columns {
			line = append(line, r.cells[c])
		}
		lines = append(lines, line)
	}
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i := range line {
			line[i] = strings.ReplaceAll(line[i], "|", `\|`)
			width[i] = max(width[i], utf8.RuneCountInString(line[i]))
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, c := range line {
			b.WriteString("| " + c + strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)) + " ")
		}
		b.WriteString("|\n")
		if n == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// with returns a copy of the table with cells of one column replaced. names lists all promises in order. If whole is
// set, the column becomes exactly cells, and rows that match no promise are removed. Otherwise, other cells and rows
// stay.
func (tb table) with(column string, names []string, cells map[string]string, whole bool) table {
	out := table{columns: slices.Clone(tb.columns)}
	if !slices.Contains(out.columns, column) {
		out.columns = append(out.columns, column)
	}
	old := map[string]map[string]string{}
	for _, r := range tb.rows {
		old[r.promise] = r.cells
	}
	for _, name := range names {
		r := row{promise: name, cells: map[string]string{}}
		for c, text := range old[name] {
			if c != column || !whole {
				r.cells[c] = text
			}
		}
		if text, ok := cells[name]; ok {
			r.cells[column] = cellText(text)
		}
		out.rows = append(out.rows, r)
	}
	if !whole {
		for _, r := range tb.rows {
			if !slices.Contains(names, r.promise) {
				out.rows = append(out.rows, r)
			}
		}
	}
	return out
}

// differences describes where the column differs from cells. The arguments are those of with.
func (tb table) differences(column string, names []string, cells map[string]string, whole bool) []string {
	if !slices.Contains(tb.columns, column) {
		return []string{fmt.Sprintf("there is no column %q", column)}
	}
	var diff []string
	have := map[string]string{}
	for _, r := range tb.rows {
		have[r.promise] = r.cells[column]
		if whole && !slices.Contains(names, r.promise) {
			diff = append(diff, fmt.Sprintf("%q is not a promise of the suite", r.promise))
		}
	}
	for _, name := range names {
		want, ran := cells[name]
		if _, ok := have[name]; !ok {
			diff = append(diff, fmt.Sprintf("the promise %q is missing", name))
		} else if ran && have[name] != cellText(want) {
			diff = append(diff, fmt.Sprintf("%q has the cell %q, but the test's result is %q", name, have[name], cellText(want)))
		}
	}
	return diff
}
