package session

import (
	"crypto/rand"
	"strings"

	"github.com/fumehood/fumehood/spec"
)

// newMarker returns what a script writes to both streams between its set-up and its command. It is random,
// so that what runs cannot write it by guessing. No text begins as it does: what begins like a marker is
// held back until more of it comes.
func newMarker() string { return "\x1efumehood-" + rand.Text() }

// script renders the set-up and the command line as one program for a POSIX shell, so that what the set-up
// changes (directory, variables, functions) holds for the command. The set-up has an empty standard input;
// the command's is the script's. With failFast the script ends with the first entry of the set-up that
// fails, and with its code.
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
