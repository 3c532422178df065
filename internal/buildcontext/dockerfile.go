package buildcontext

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// Dockerfile is what is to be known of one before it is built.
type Dockerfile struct {
	// Bases are the references of the images that it builds on or copies from, each once.
	Bases []string
	// Needs says what only BuildKit can do, by line: "line 3: RUN --mount". Heredoc is the first line that needs
	// a version of it that Engines have had since 23.0; 0 where none does.
	Needs   []string
	Heredoc int
	// Syntax is the image of the builder that it asks for by "# syntax="; empty where it asks for none.
	Syntax string
	// SyntaxLine is where it asks for that.
	SyntaxLine int
	// Caches says that a step mounts a cache of the builder's, or that the mount's type cannot be told.
	Caches bool

	text    string
	uses    []use
	fetched []string // each ADD of what may be no path in the context: "line 3: ADD https://..."

	instructions int
}

// use is where a Dockerfile names an image.
type use struct {
	ref         string         // its reference, the variables in it replaced
	first, last int            // the instruction's lines, from 0 on
	written     *regexp.Regexp // finds the reference as it is written; its only group is what is to be replaced
}

// Renamed returns the Dockerfile with other references in place of those that are keys of names.
func (d Dockerfile) Renamed(names map[string]string) (string, error) {
	lines := strings.Split(d.text, "\n")
	for _, u := range d.uses {
		name, is := names[u.ref]
		if !is {
			continue
		}
		found := false
		for i := u.first; i <= u.last && i < len(lines) && !found; i++ {
			comment := strings.HasPrefix(strings.TrimSpace(lines[i]), "#")
			if at := u.written.FindStringSubmatchIndex(lines[i]); at != nil && !comment {
				lines[i], found = lines[i][:at[2]]+name+lines[i][at[3]:], true
			}
		}
		if !found {
			return "", fmt.Errorf("line %d: the image %s is named in a way that cannot be replaced", u.first+1, u.ref)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// Parse reads a Dockerfile. args are the arguments that are given to the build, those among them that the builder
// itself knows (TARGETARCH ...).
func Parse(text string, args map[string]string) (Dockerfile, error) {
	if err := checkDirectives(text); err != nil {
		return Dockerfile{}, err
	}
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return Dockerfile{}, err
	}
	d := reader{given: args, args: variables{}, lex: shell.NewLex(parsed.EscapeToken), stages: map[string]bool{"scratch": true}}
	d.found.text = text
	d.found.instructions = len(parsed.AST.Children)
	var at []parser.Range
	d.found.Syntax, _, at, _ = parser.DetectSyntax([]byte(text))
	if len(at) > 0 {
		d.found.SyntaxLine = at[0].Start.Line
	}
	for _, n := range parsed.AST.Children {
		if err := d.instruction(n); err != nil {
			return Dockerfile{}, fmt.Errorf("line %d: %w", n.StartLine, err)
		}
		d.needs(n)
	}
	return d.found, nil
}

// reader is what is known of a Dockerfile while it is read.
type reader struct {
	given  map[string]string
	args   variables // those before the first stage
	lex    *shell.Lex
	stages map[string]bool // by name and by number
	count  int
	found  Dockerfile
}

// buildKitFlags are the flags of instructions that the Engine's own builder does not know.
var buildKitFlags = map[string][]string{
	"run":  {"--mount", "--network", "--security", "--device"},
	"copy": {"--chmod", "--link", "--parents", "--exclude"},
	"add":  {"--chmod", "--link", "--checksum", "--keep-git-dir", "--exclude", "--unpack"},
}

// needs notes what of an instruction only BuildKit can do.
func (d *reader) needs(n *parser.Node) {
	word := strings.ToLower(n.Value)
	for _, flag := range n.Flags {
		if name, _, _ := strings.Cut(flag, "="); slices.Contains(buildKitFlags[word], name) {
			d.found.Needs = append(d.found.Needs, fmt.Sprintf("line %d: %s %s", n.StartLine, strings.ToUpper(word), name))
		}
	}
	if len(n.Heredocs) > 0 {
		d.found.Needs = append(d.found.Needs, fmt.Sprintf("line %d: a heredoc", n.StartLine))
		if d.found.Heredoc == 0 {
			d.found.Heredoc = n.StartLine
		}
	}
}

// variables are arguments with their values.
type variables map[string]string

func (a variables) Get(name string) (string, bool) { v, ok := a[name]; return v, ok }

// Keys gives the names.
func (a variables) Keys() []string {
	var names []string
	for name := range a {
		names = append(names, name)
	}
	return names
}

func (d *reader) instruction(n *parser.Node) error {
	switch strings.ToLower(n.Value) {
	case "arg":
		for word := n.Next; word != nil && d.count == 0; word = word.Next {
			if err := d.arg(word.Value); err != nil {
				return err
			}
		}
	case "from":
		if n.Next == nil {
			return nil // the builder tells
		}
		ref, _, err := d.lex.ProcessWord(n.Next.Value, d.args)
		if err != nil {
			return err
		}
		d.add(n, ref, `(?:^|\s)(%s)(?:\s|$)`, n.Next.Value)
		if as := n.Next.Next; as != nil && strings.EqualFold(as.Value, "as") && as.Next != nil {
			d.stages[strings.ToLower(as.Next.Value)] = true
		}
		d.stages[strconv.Itoa(d.count)] = true
		d.count++
	case "copy":
		d.copied(n)
	case "add":
		d.addition(n)
	case "onbuild":
		if n.Next != nil && len(n.Next.Children) > 0 && strings.EqualFold(n.Next.Children[0].Value, "add") {
			trigger := *n.Next.Children[0]
			trigger.StartLine = n.StartLine
			return d.instruction(&trigger)
		}
	case "run":
		for _, flag := range n.Flags {
			if mount, ok := strings.CutPrefix(flag, "--mount="); ok {
				d.mount(n, mount)
				d.found.Caches = d.found.Caches || mayCache(mount)
			}
		}
	}
	return nil
}

// arg takes an argument before the first stage: as it was given, else its default.
func (d *reader) arg(word string) error {
	name, value, has := strings.Cut(word, "=")
	if given, ok := d.given[name]; ok {
		d.args[name] = given
		return nil
	}
	if !has {
		return nil
	}
	value, _, err := d.lex.ProcessWord(value, d.args)
	d.args[name] = value
	return err
}

// addition notes what an ADD may not take from the context.
func (d *reader) addition(n *parser.Node) {
	for word := n.Next; word != nil && word.Next != nil; word = word.Next { // the last one is where it goes
		if isRemote(word.Value) {
			d.found.fetched = append(d.found.fetched, fmt.Sprintf("line %d: ADD %s", n.StartLine, word.Value))
		}
	}
}

// copied takes the image that a COPY is from.
func (d *reader) copied(n *parser.Node) {
	for _, flag := range n.Flags {
		if ref, ok := strings.CutPrefix(flag, "--from="); ok {
			d.add(n, ref, `\s--from=(%s)(?:\s|$)`, ref)
		}
	}
}

// mount takes the image that a RUN's mount is of, if it is of one.
func (d *reader) mount(n *parser.Node, of string) {
	for field := range strings.SplitSeq(of, ",") {
		if ref, ok := strings.CutPrefix(field, "from="); ok && !strings.Contains(ref, "$") { // variables are the stage's
			d.add(n, ref, `[=,]from=(%s)(?:[,\s]|$)`, ref)
		}
	}
}

// mayCache reports whether a RUN's mount is of a cache, or of a type that only the builder can tell.
func mayCache(mount string) bool {
	for field := range strings.SplitSeq(mount, ",") {
		key, value, _ := strings.Cut(field, "=")
		if strings.ContainsAny(field, "\"\\") {
			return true // quoted: what separates fields may be another comma
		}
		if strings.EqualFold(strings.TrimSpace(key), "type") && (strings.EqualFold(strings.TrimSpace(value), "cache") || strings.Contains(value, "$")) {
			return true
		}
	}
	return false
}

// add notes an image that an instruction names. pattern finds it as it is written there.
func (d *reader) add(n *parser.Node, ref, pattern, written string) {
	if ref == "" || d.stages[strings.ToLower(ref)] {
		return
	}
	if !slices.Contains(d.found.Bases, ref) {
		d.found.Bases = append(d.found.Bases, ref)
	}
	d.found.uses = append(d.found.uses, use{
		ref: ref, first: n.StartLine - 1, last: n.EndLine - 1, written: regexp.MustCompile(fmt.Sprintf(pattern, regexp.QuoteMeta(written))),
	})
}
