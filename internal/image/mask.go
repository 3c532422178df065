package image

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
)

// leastMasked is the length in bytes of the shortest value that Mask replaces. Shorter ones may occur in any text.
const leastMasked = 4

// leastLine is the length in bytes of the shortest line of a value that Mask replaces alone.
const leastLine = 8

// Mask replaces the values of the named variables of this process by their names, such as ${TOKEN}, since the values
// must not appear in messages and logs. Values of fewer than 4 bytes are not replaced. A value that contains another
// is replaced as a whole. Builders print a value of several lines line by line, so its lines of 8 bytes or more are
// replaced too.
func Mask(names []string, text string) string {
	type part struct{ owner, text string }
	var all []part
	for _, name := range names {
		value := os.Getenv(name)
		if len(value) < leastMasked {
			continue
		}
		all = append(all, part{name, value})
		if quoted := strings.Trim(strconv.Quote(value), `"`); quoted != value { // as messages quote it
			all = append(all, part{name, quoted})
		}
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= leastLine && line != value {
				all = append(all, part{name, line})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b part) int { return cmp.Compare(len(b.text), len(a.text)) })
	var pairs []string // a replacer prefers earlier pairs at the same place
	for _, p := range all {
		pairs = append(pairs, p.text, "${"+p.owner+"}")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
