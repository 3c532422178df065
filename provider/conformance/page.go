package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pageWidth is the length at which a line of text is broken.
const pageWidth = 120

const pageHead = `# What each provider promises

The conformance suite, ` + "`provider/conformance`" + `, has a subtest for each promise of the library. Every provider runs it. A
promise is kept if its subtest passed. For an exception, a check of what happens instead passed.

Each column is a provider, with the transport, image and user where these matter. A column whose name ends in "provider"
has the promises about sandboxes as a whole and later processes, which do not depend on those. The numbers in its last
cell are its lists of exceptions below. The result of each promise in each column is in [promises.json](promises.json),
from which this page is generated. The suite fails if that file differs from what ran. ` + "`make promises`" + ` updates both
files.

Root in a service of another user: Docker Engine before 24 starts root without capabilities there (moby#45491, with
` + "`no-new-privileges`" + `). Through a guest, root has them all the same, unless the daemon lacks capabilities itself; by the
Engine's exec alone it cannot have them. Where it cannot, the command is refused before anything runs.
`

// exceptions is a list of exceptions that are the same in each of its columns.
type exceptions struct {
	columns []string
	reasons []reason
}

type reason struct {
	text     string
	promises []string
}

// exceptions returns all exceptions of the matrix. Each is in exactly one list.
func (m matrix) exceptions() []exceptions {
	var lists []exceptions
	for _, promise := range m.promises() {
		var texts []string
		columns := map[string][]string{} // by reason
		for _, column := range m.columns() {
			if text, ok := strings.CutPrefix(m[column][promise], excepted); ok {
				if columns[text] == nil {
					texts = append(texts, text)
				}
				columns[text] = append(columns[text], column)
			}
		}
		for _, text := range texts {
			i := slices.IndexFunc(lists, func(l exceptions) bool { return slices.Equal(l.columns, columns[text]) })
			if i < 0 {
				i, lists = len(lists), append(lists, exceptions{columns: columns[text]})
			}
			list := &lists[i]
			j := slices.IndexFunc(list.reasons, func(r reason) bool { return r.text == text })
			if j < 0 {
				j, list.reasons = len(list.reasons), append(list.reasons, reason{text: text})
			}
			list.reasons[j].promises = append(list.reasons[j].promises, promise)
		}
	}
	slices.SortFunc(lists, func(a, b exceptions) int { return slices.Compare(a.columns, b.columns) })
	return lists
}

// page returns the content of docs/promises.md.
func (m matrix) page() string {
	all, lists := m.promises(), m.exceptions()
	var groups []string
	byGroup := map[string][]string{} // promises without their group, by group
	for _, promise := range all {
		group, name, _ := strings.Cut(promise, "/")
		if byGroup[group] == nil {
			groups = append(groups, group)
		}
		byGroup[group] = append(byGroup[group], name)
	}

	var b strings.Builder
	b.WriteString(pageHead)
	m.writeColumns(&b, lists)
	for i, list := range lists {
		fmt.Fprintf(&b, "\n## Exceptions %d\n", i+1)
		for _, r := range list.reasons {
			fmt.Fprintf(&b, "- %s:\n", r.text)
			writeExceptions(&b, r.promises, byGroup)
		}
	}
	b.WriteString("\n## All promises\n")
	for _, group := range groups {
		line := "- " + group + ":"
		for word := range strings.FieldsSeq(strings.Join(byGroup[group], "; ") + ".") {
			if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > pageWidth {
				b.WriteString(line + "\n")
				line = " "
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// writeColumns writes the table of columns: how many of its promises each keeps, and its lists of exceptions.
func (m matrix) writeColumns(b *strings.Builder, lists []exceptions) {
	width := 0
	for column := range m {
		width = max(width, utf8.RuneCountInString(column))
	}
	fmt.Fprintf(b, "\n## Columns\n| %-*s | kept       | exceptions   |\n|%s|------------|--------------|\n", width, "column", strings.Repeat("-", width+2))
	for _, column := range m.columns() {
		n, ran, total := 0, 0, len(m.having(slices.Collect(maps.Keys(m[column]))).promises())
		for _, text := range m[column] {
			if text != notRun {
				ran++
			}
			if text == kept {
				n++
			}
		}
		count := fmt.Sprintf("%d of %d", n, total)
		if ran < total {
			count += fmt.Sprintf(", %d not run", total-ran)
		}
		var in []string
		for i, list := range lists {
			if slices.Contains(list.columns, column) {
				in = append(in, strconv.Itoa(i+1))
			}
		}
		fmt.Fprintf(b, "| %-*s | %-10s | %-12s |\n", width, column, count, strings.Join(in, ", "))
	}
}

// writeExceptions writes the promises, which are sorted, with one line for a complete group. of has the names of all
// promises by group.
func writeExceptions(b *strings.Builder, promises []string, byGroup map[string][]string) {
	for len(promises) > 0 {
		group, _, _ := strings.Cut(promises[0], "/")
		n := len(byGroup[group])
		if n > 1 && len(promises) >= n && strings.HasPrefix(promises[n-1], group+"/") {
			fmt.Fprintf(b, "  - all %d of %s\n", n, group)
			promises = promises[n:]
			continue
		}
		fmt.Fprintf(b, "  - %s\n", promises[0])
		promises = promises[1:]
	}
}
