package spec

import (
	"cmp"
	"errors"
	"path"
	"regexp"
	"strings"

	"github.com/fumehood/fumehood"
)

// CommandLine is the shell text that runs an entry: the command, for agents AgentCommand if there is
// one, and the entry file with entry in the place of each {entry_file}. The command is shell text of the
// spec's author and stands as it is. The entry file is one word whatever is in it: it is quoted where a
// POSIX shell would read it otherwise. Other braces stay. A spec without a command, and a NUL byte in
// the entry, are a fumehood.ErrConfig.
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
	return line + " " + Quote(strings.ReplaceAll(c.EntryFile, "{entry_file}", entry)), nil
}

// plain matches words that a shell reads as they are.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// Quote makes s one word of a POSIX shell.
func Quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// HomeOutside is the line of a script that keeps HOME out of the working directory, where the code under test could have put what
// programs read from there. It is empty where the environment or one of given sets HOME.
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
