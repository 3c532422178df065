package session

import (
	"crypto/rand"
	"strings"

	"github.com/fumehood/fumehood/session/spec"
)

// newMarker returns the marker that a script writes to both streams between its setup and its command. It is
// random, so that the script's processes cannot guess it. It begins with a byte that text does not contain:
// output that begins like a marker is held back until more of it arrives.
func newMarker() string { return "\x1efumehood-" + rand.Text() }

// script renders the setup and the command line as one program for a POSIX shell. So changes by the setup
// (directory, variables, functions) hold for the command. The setup has an empty standard input, and the command
// has the script's. With failFast the script exits at the first setup entry that fails, with its exit code.
func script(setup []string, failFast bool, marker, command string) string {
	var b strings.Builder
	line := func(s string) { b.WriteString(s + "\n") }
	line("{ :")
	for _, entry := range setup {
		line(entry)
		if failFast {
			line("case $? in 0) ;; *) exit $? ;; esac")
		}
	}
	line("} </dev/null")
	m := spec.Quote(marker)
	line("printf %s " + m + "; printf %s " + m + " >&2")
	line(command)
	return b.String()
}
