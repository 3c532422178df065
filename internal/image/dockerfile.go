package image

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// Dockerfile is the result of parsing a Dockerfile.
type Dockerfile struct {
	Text string
	Path string // in the context's folder; empty if it is inline or outside of it
	// Bases are the references of the images that it builds on or copies from, without duplicates.
	Bases []string
	// Needs lists the features that only BuildKit has, by line: "line 3: RUN --mount". Heredoc is the first line with
	// a heredoc, which needs Engine 23.0 or newer; 0 without a heredoc.
	Needs   []string
	Heredoc int
	// Syntax is the builder image requested by "# syntax="; empty without such a line.
	Syntax string
	// SyntaxLine is the line of that request.
	SyntaxLine int
	// Platforms reports whether a FROM names a platform.
	Platforms bool
	// Caches reports whether a step mounts a cache of the builder, or a mount whose type is not known.
	Caches bool

	uses    []use
	fetched []string // each ADD whose source may not be a path in the context: "line 3: ADD https://..."

	instructions int
}

// use is a place where a Dockerfile names an image.
type use struct {
	ref         string         // the reference, with variables replaced
	first, last int            // lines of the instruction, from 0
	written     *regexp.Regexp // matches the reference as written; its only group is the part to replace
}

// Rename returns the Dockerfile with references replaced: names maps old references to new ones.
func (d Dockerfile) Rename(names map[string]string) (string, error) {
	lines := strings.Split(d.Text, "\n")
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

// Parse parses a Dockerfile. args are the build arguments, including those that the builder sets itself (TARGETARCH
// ...).
func Parse(text string, args map[string]string) (Dockerfile, error) {
	if err := checkDirectives(text); err != nil {
		return Dockerfile{}, err
	}
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return Dockerfile{}, err
	}
	d := reader{given: args, args: variables{}, lex: shell.NewLex(parsed.EscapeToken), stages: map[string]bool{"scratch": true}}
	d.found.Text = text
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

// reader is the state while a Dockerfile is parsed.
type reader struct {
	given  map[string]string
	args   variables // those before the first stage
	lex    *shell.Lex
	stages map[string]bool // by name and by number
	count  int
	found  Dockerfile
}

// buildKitFlags are the instruction flags that the Engine's own builder does not support.
var buildKitFlags = map[string][]string{
	"run":  {"--mount", "--network", "--security", "--device"},
	"copy": {"--chmod", "--link", "--parents", "--exclude"},
	"add":  {"--chmod", "--link", "--checksum", "--keep-git-dir", "--exclude", "--unpack"},
}

// needs records the features of an instruction that only BuildKit has.
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

// variables are build arguments and their values.
type variables map[string]string

func (a variables) Get(name string) (string, bool) { v, ok := a[name]; return v, ok }

// Keys returns the names.
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
			return nil // the builder reports it
		}
		ref, _, err := d.lex.ProcessWord(n.Next.Value, d.args)
		if err != nil {
			return err
		}
		d.addImage(n, ref, `(?:^|\s)(%s)(?:\s|$)`, n.Next.Value)
		d.found.Platforms = d.found.Platforms || len(n.Flags) > 0
		if as := n.Next.Next; as != nil && strings.EqualFold(as.Value, "as") && as.Next != nil {
			d.stages[strings.ToLower(as.Next.Value)] = true
		}
		d.stages[strconv.Itoa(d.count)] = true
		d.count++
	case "copy":
		d.addCopy(n)
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

// arg sets an argument before the first stage: to the given value, or else to its default.
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

// addition records the sources of an ADD that may not be in the context.
func (d *reader) addition(n *parser.Node) {
	for word := n.Next; word != nil && word.Next != nil; word = word.Next { // the last one is the destination
		if isRemote(word.Value) {
			d.found.fetched = append(d.found.fetched, fmt.Sprintf("line %d: ADD %s", n.StartLine, word.Value))
		}
	}
}

// addCopy records the image that a COPY copies from.
func (d *reader) addCopy(n *parser.Node) {
	for _, flag := range n.Flags {
		if ref, ok := strings.CutPrefix(flag, "--from="); ok {
			d.addImage(n, ref, `\s--from=(%s)(?:\s|$)`, ref)
		}
	}
}

// mount records the image of a RUN's mount, if it has one.
func (d *reader) mount(n *parser.Node, options string) {
	for field := range strings.SplitSeq(options, ",") {
		// Variables belong to the stage.
		if ref, ok := strings.CutPrefix(field, "from="); ok && !strings.Contains(ref, "$") {
			d.addImage(n, ref, `[=,]from=(%s)(?:[,\s]|$)`, ref)
		}
	}
}

// mayCache reports whether a RUN's mount is a cache, or of a type that only the builder can determine.
func mayCache(mount string) bool {
	for field := range strings.SplitSeq(mount, ",") {
		key, value, _ := strings.Cut(field, "=")
		if strings.ContainsAny(field, "\"\\") {
			return true // quoted: a comma may be part of a field
		}
		if strings.EqualFold(strings.TrimSpace(key), "type") && (strings.EqualFold(strings.TrimSpace(value), "cache") || strings.Contains(value, "$")) {
			return true
		}
	}
	return false
}

// addImage records an image that an instruction names. pattern matches the reference as it is written there.
func (d *reader) addImage(n *parser.Node, ref, pattern, written string) {
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
