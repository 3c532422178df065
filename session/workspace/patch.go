package workspace

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WritePatch writes changes as a patch in git's format, for "git apply". Lines that begin with "#" report what
// such a patch cannot hold: folders, and contents without hunks. Git ignores these lines. Of a mode, git applies
// only whether the file is executable.
func WritePatch(w io.Writer, changes []Change) error {
	b := bufio.NewWriter(w)
	for _, c := range changes {
		if c.typeChanged() { // remove the old entry, add the new one
			writeChange(b, Change{Path: c.Path, Kind: Removed, Before: c.Before, Omitted: c.Omitted, Hunks: half(c, '-')})
			writeChange(b, Change{Path: c.Path, Kind: Added, After: c.After, Omitted: c.Omitted, Hunks: half(c, '+')})
			continue
		}
		writeChange(b, c)
	}
	return b.Flush()
}

// half returns the hunks for one side of a change of type. They are those of the file; the other side is not a
// file.
func half(c Change, side byte) string {
	if e := map[byte]*Entry{'-': c.Before, '+': c.After}[side]; e.Type == File {
		return c.Hunks
	}
	return ""
}

// gitMode returns the mode in git's patches: type and permission bits.
func gitMode(e *Entry) string {
	if e.Type == Link {
		return "120000"
	}
	return fmt.Sprintf("100%03o", uint32(e.Mode))
}

func writeChange(w *bufio.Writer, c Change) {
	e := c.After
	if e == nil {
		e = c.Before
	}
	if e.Type == Dir {
		writeDir(w, c)
		return
	}
	a, b := quote("a/"+c.Path), quote("b/"+c.Path)
	fmt.Fprintf(w, "diff --git %s %s\n", a, b)
	switch c.Kind {
	case Added:
		fmt.Fprintf(w, "new file mode %s\n", gitMode(c.After))
		a = "/dev/null"
	case Removed:
		fmt.Fprintf(w, "deleted file mode %s\n", gitMode(c.Before))
		b = "/dev/null"
	case Changed:
		if c.Before.Mode != c.After.Mode {
			fmt.Fprintf(w, "old mode %s\nnew mode %s\n", gitMode(c.Before), gitMode(c.After))
		}
	}
	hunks := c.Hunks
	if e.Type == Link {
		hunks = linkHunk(c)
	}
	switch {
	case c.Omitted != "" && e.Type == File:
		fmt.Fprintf(w, "# %s and %s differ (%s)\n", a, b, c.Omitted)
	case hunks != "":
		fmt.Fprintf(w, "--- %s\n+++ %s\n%s", markEnd(a), markEnd(b), hunks)
	}
}

func writeDir(w *bufio.Writer, c Change) {
	name := quote(c.Path + "/")
	if c.Kind == Changed {
		fmt.Fprintf(w, "# folder %s changed from mode %s to %s\n", name, c.Before.Mode, c.After.Mode)
		return
	}
	fmt.Fprintf(w, "# folder %s %s\n", name, c.Kind)
}

// linkHunk returns the hunk of a link as git writes it: a file that contains the target.
func linkHunk(c Change) string {
	var b strings.Builder
	before, after := "-1", "+1"
	if c.Before == nil {
		before = "-0,0"
	}
	if c.After == nil {
		after = "+0,0"
	}
	fmt.Fprintf(&b, "@@ %s %s @@\n", before, after)
	if c.Before != nil {
		fmt.Fprintf(&b, "-%s\n\\ No newline at end of file\n", c.Before.Target)
	}
	if c.After != nil {
		fmt.Fprintf(&b, "+%s\n\\ No newline at end of file\n", c.After.Target)
	}
	return b.String()
}

// markEnd marks the end of a name that contains a blank, as git does.
func markEnd(name string) string {
	if strings.Contains(name, " ") && !strings.HasPrefix(name, `"`) {
		return name + "\t"
	}
	return name
}

// quote quotes a name as git does. A name with special bytes is put in quotes, with octal escapes.
func quote(name string) string {
	plain := true
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			plain = false
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			plain = false
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	if plain {
		return name
	}
	return `"` + b.String() + `"`
}
