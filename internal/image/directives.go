package image

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	// plainDirective matches a directive that all versions of the builders read in the same way.
	plainDirective = regexp.MustCompile(`^#[ \t]*(syntax|escape|check)[ \t]*=[ \t]*[!-~]`)
	// anyDirective matches a line that some version may read as a directive, or skip as an unknown one.
	// knownDirective matches a line that then has an effect.
	anyDirective   = regexp.MustCompile(`^[^A-Za-z]*(#|//)[^A-Za-z]*[A-Za-z][A-Za-z0-9]*[\s\p{Z}]*=|^#!`)
	knownDirective = regexp.MustCompile(`(?i)^[^A-Za-z]*(#|//)[^A-Za-z]*(syntax|escape|check)[\s\p{Z}]*=`)
)

// checkDirectives rejects a Dockerfile whose directives ("# syntax=") may be read in different ways by versions of
// the builders. Otherwise the Dockerfile that is checked here could differ from the one that is built. Versions
// differ in what they skip at the beginning: "#!" lines, unknown directives, a byte order mark, non-ASCII spaces.
// Older ones do not know check, and ignore an escape after it.
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

// errTrigger requires an ONBUILD that every version of the builders reads as the same instruction.
var errTrigger = errors.New("wanted one instruction on one line")
