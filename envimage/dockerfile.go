package envimage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// bases are the references of the images that a Dockerfile builds on or copies from, each once.
func bases(text string, args map[string]string) ([]string, error) {
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := dockerfile{given: args, args: variables{}, lex: shell.NewLex(parsed.EscapeToken), stages: map[string]bool{"scratch": true}}
	for _, n := range parsed.AST.Children {
		if err := d.instruction(n); err != nil {
			return nil, fmt.Errorf("line %d: %w", n.StartLine, err)
		}
	}
	return d.refs, nil
}

// dockerfile is what is known of one while it is read.
type dockerfile struct {
	given  map[string]string
	args   variables // those before the first stage
	lex    *shell.Lex
	stages map[string]bool // by name and by number
	count  int
	refs   []string
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

func (d *dockerfile) instruction(n *parser.Node) error {
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
		d.add(ref)
		if as := n.Next.Next; as != nil && strings.EqualFold(as.Value, "as") && as.Next != nil {
			d.stages[strings.ToLower(as.Next.Value)] = true
		}
		d.stages[strconv.Itoa(d.count)] = true
		d.count++
	case "copy":
		for _, flag := range n.Flags {
			if ref, ok := strings.CutPrefix(flag, "--from="); ok {
				d.add(ref)
			}
		}
	}
	return nil
}

// arg takes an argument before the first stage: as it was given, else its default.
func (d *dockerfile) arg(word string) error {
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

func (d *dockerfile) add(ref string) {
	if ref != "" && !d.stages[strings.ToLower(ref)] && !slices.Contains(d.refs, ref) {
		d.refs = append(d.refs, ref)
	}
}
