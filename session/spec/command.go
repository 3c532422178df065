package spec

import (
	"cmp"
	"errors"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
)

// CommandLine returns the shell text that runs an entry. It is the command (for agents AgentCommand, if there is
// one), followed by the entry file, in which each {entry_file} is replaced by entry. The command is shell text of
// the spec's author and is not changed. The entry file is always one word: it is quoted if a POSIX shell would
// interpret it. Other braces are kept. A spec without a command, and a NUL byte in the entry, are a
// fumehood.ErrConfig.
func (c Commands) CommandLine(entry string, agent bool) (string, error) {
	bad := func(says string) (string, error) {
		return "", &fumehood.Error{Op: "make the command line", Class: fumehood.ErrConfig, Err: errors.New(says)}
	}
	line := c.Command
	if agent {
		line = cmp.Or(c.AgentCommand, c.Command)
	}
	switch {
	case strings.TrimSpace(line) == "":
		return bad("the spec has no commands.command")
	case strings.ContainsRune(entry, 0):
		return bad("the entry contains a NUL byte")
	case c.EntryFile == "":
		return line, nil
	}
	return line + " " + Quote(strings.ReplaceAll(c.EntryFile, entryPlaceholder, entry)), nil
}

// plain matches words that a shell does not interpret.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// Quote returns s as one word for a POSIX shell.
func Quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// QuoteAll returns a command line for a person to paste into a shell. Words with characters that a terminal would obey, or not
// show, are written with escapes, as of bash.
func QuoteAll(words []string) string {
	line := make([]string, len(words))
	for i, word := range words {
		line[i] = Quote(word)
		if strings.ContainsFunc(word, func(c rune) bool { return !strconv.IsPrint(c) }) || !utf8.ValidString(word) {
			escaped := strconv.Quote(word)
			line[i] = "$'" + strings.ReplaceAll(escaped[1:len(escaped)-1], "'", `\'`) + "'"
		}
	}
	return strings.Join(line, " ")
}

// HomeOutside returns a line of a script that moves HOME out of the working directory. Programs read files from
// HOME, which code under test could have written there. It returns "" if the environment or one of given sets
// HOME.
func (e Environment) HomeOutside(given ...map[string]string) string {
	for _, env := range append(given, e.Environment.Env) {
		if _, set := env["HOME"]; set {
			return ""
		}
	}
	dir, home := path.Clean(e.WithDefaults().Docker.Workdir), "/tmp"
	if dir == home {
		home = "/var/tmp"
	}
	return "case $HOME/ in " + Quote(dir+"/") + "*) export HOME=" + home + " ;; esac\n"
}
