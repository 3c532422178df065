package buildcontext

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	// plainDirective is a directive as every version of the builders reads it.
	plainDirective = regexp.MustCompile(`^#[ \t]*(syntax|escape|check)[ \t]*=[ \t]*[!-~]`)
	// anyDirective is a line that some version may take for a directive, or pass over as an unknown one, and knownDirective one
	// that has an effect then.
	anyDirective   = regexp.MustCompile(`^[^A-Za-z]*(#|//)[^A-Za-z]*[A-Za-z][A-Za-z0-9]*[\s\p{Z}]*=|^#!`)
	knownDirective = regexp.MustCompile(`(?i)^[^A-Za-z]*(#|//)[^A-Za-z]*(syntax|escape|check)[\s\p{Z}]*=`)
)

// checkDirectives refuses a Dockerfile whose directives ("# syntax=") two versions of the builders would read in two ways, for
// then what is judged here is not what is built. Versions differ in what they pass over at the beginning: "#!" lines, unknown
// directives, a byte order mark, blanks of other alphabets. Older ones do not know check, and read no escape after it.
func checkDirectives(text string) error {
	seen := map[string]bool{}
	doubt := false
	for n, line := range strings.Split(text, "\n") {
		plain := plainDirective.FindStringSubmatch(line)
		switch {
		case plain != nil && !doubt && !seen[plain[1]] && !seen["check"]:
			seen[plain[1]] = true
		case knownDirective.MatchString(line):
			return fmt.Errorf("line %d: versions of the builder read this directive in different ways; write directives as "+
				"\"# name=value\" from the first line on, check after the others, each once", n+1)
		case anyDirective.MatchString(line):
			doubt = true
		default:
			return nil
		}
	}
	return nil
}

// errTrigger says how ONBUILD has to be written, so that every version of the builders reads the same instruction.
var errTrigger = errors.New("wanted one instruction on one line")
