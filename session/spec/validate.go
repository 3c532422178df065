package spec

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session/workspace"
)

// Validate checks what Parse checks beyond types and which would otherwise be noticed only after a command: the
// placeholders of commands.entry_file, the globs and the compression of snapshots. It is for environments that were
// not parsed. Its errors are fumehood.ErrConfig.
func (e *Environment) Validate() error {
	var errs []error
	check := func(key, form, value string) {
		if f := forms[form]; !f.Takes(value) {
			errs = append(errs, &fumehood.Error{Op: key, Class: fumehood.ErrConfig, Err: fmt.Errorf("wanted %s, found %q", f.What(), value)})
		}
	}
	check("commands.entry_file", "entry file", e.Commands.EntryFile)
	for i, g := range e.Snapshot.KeepGlobs {
		check(fmt.Sprintf("snapshot.keep_globs[%d]", i), "glob", g)
	}
	for i, g := range e.Snapshot.IgnoreGlobs {
		check(fmt.Sprintf("snapshot.ignore_globs[%d]", i), "glob", g)
	}
	check("snapshot.compression", "compression", cmp.Or(e.Snapshot.Compression, DefaultCompression))
	return errors.Join(errs...)
}

func isGlob(s string) bool { return workspace.CreateOptions{Keep: []string{s}}.Validate() == nil }

// entryPlaceholder is the placeholder of commands.entry_file.
const entryPlaceholder = "{entry_file}"

// placeholders match what looks like a placeholder. Other braces are part of a file's name.
var placeholders = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*\}`)

// unknownPlaceholder returns the first placeholder in an entry file that is not replaced, or "".
func unknownPlaceholder(s string) string {
	for _, p := range placeholders.FindAllString(s, -1) {
		if p != entryPlaceholder {
			return p
		}
	}
	return ""
}
