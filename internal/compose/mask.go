package compose

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
)

// leastMasked is the length in bytes of the shortest value that Mask replaces. Shorter ones may occur in any text.
const leastMasked = 4

// Mask replaces the values of the named variables of this process by their names, such as ${TOKEN}, since the values
// must not appear in messages and logs. Values of fewer than 4 bytes are not replaced. A value that contains another
// is replaced as a whole.
func Mask(names []string, text string) string {
	type variable struct{ name, value string }
	var all []variable
	for _, name := range names {
		if value := os.Getenv(name); len(value) >= leastMasked {
			all = append(all, variable{name, value})
		}
	}
	slices.SortStableFunc(all, func(a, b variable) int { return cmp.Compare(len(b.value), len(a.value)) })
	var pairs []string // a replacer prefers earlier pairs at the same place
	for _, v := range all {
		pairs = append(pairs, v.value, "${"+v.name+"}")
		if quoted := strings.Trim(strconv.Quote(v.value), `"`); quoted != v.value { // as messages quote it
			pairs = append(pairs, quoted, "${"+v.name+"}")
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
