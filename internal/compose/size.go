package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood/internal/hostpath"
)

// A few lines can expand to any amount of text: variables that refer to each other, services that extend others, ranges
// of ports. So the size of a project is estimated before compose-go expands it. The estimate is never too low. It also
// counts work where compose-go does more than its result shows.
const (
	// maxSize is the maximum size of a project's expanded files in bytes: texts and variables, plus valueSize for each
	// value and portSize for each port.
	maxSize   = 64 << 20
	valueSize = 64
	portSize  = 1 << 10
)

// errSize is the error for a project that exceeds maxSize or maxNested.
var errSize = fmt.Errorf("the expanded project exceeds %d MiB, or has references nested more than %d deep", maxSize>>20, maxNested)

// grow adds n to the estimated size of the project. It fails if that exceeds maxSize.
func (l *loading) grow(file string, n int) error {
	if l.size += n; l.size > maxSize {
		return fmt.Errorf("%s: %w", file, errSize)
	}
	return nil
}

// refers matches a reference to a variable as compose-go does. It may also match text that is no reference, such as
// "$$A".
var refers = regexp.MustCompile(`\$\{?((?i:[_a-z][_a-z0-9]*))`)

// maxNested is how deep references may be nested in the defaults of others. For each level, compose-go reads the rest
// of the text many times.
const maxNested = 100

// maxNesting returns an upper bound for the nesting of references, as in "${A:-${B}}".
func maxNesting(text string) (deepest int) {
	depth := 0
	for i, c := range text {
		switch {
		case c == '{' && i > 0 && text[i-1] == '$':
			depth++
		case c == '}' && depth > 0:
			depth--
		}
		deepest = max(deepest, depth)
	}
	return deepest
}

// maxExpansion returns an upper bound for the length of text with references replaced by values. It stops counting above
// maxSize. For each "${", it adds the length of the whole text, which compose-go may search again: 18 KB with 3,600
// defaults take it 2 s.
func maxExpansion(text string, sizeOf func(name string) int) int {
	n := len(text) + strings.Count(text, "${")*len(text)
	if maxNesting(text) > maxNested {
		return maxSize + 1
	}
	for n <= maxSize {
		m := refers.FindStringSubmatchIndex(text)
		if m == nil {
			break
		}
		n += sizeOf(text[m[2]:m[3]])
		text = text[m[1]:]
	}
	return n
}

// variables returns an upper bound for the total size of the variables that a file sets. These may refer to variables
// of env and to earlier ones. It records the size of each in sizes, by name. The syntax is dotenv's.
func variables(text string, env map[string]string, sizes map[string]int) int {
	longest, total := 0, len(text)
	sizeOf := func(name string) int { return max(len(env[name]), sizes[name]) }
	for _, value := range env {
		longest = max(longest, len(value))
	}
	for _, n := range sizes {
		longest = max(longest, n)
	}
	text = strings.TrimPrefix(text, "\uFEFF")
	for total <= maxSize {
		name, value, quote, rest, ok := statement(text)
		if !ok {
			break
		}
		text = rest
		n := len(value)
		switch {
		case quote == '\'':
		case quote == '"' && strings.Contains(value, `\0`): // an octal escape can be part of a reference
			if times := strings.Count(value, "$") + strings.Count(value, `\0`); longest > 0 && times > maxSize/longest {
				n = maxSize + 1
			} else {
				n = maxExpansion(value, sizeOf) + times*longest
			}
		case value == "": // a name without value has its value from elsewhere
			n = sizeOf(name)
		default:
			n = maxExpansion(value, sizeOf)
		}
		sizes[name] = max(n, sizes[name])
		longest = max(longest, n)
		total += n + valueSize
	}
	return total
}

// statement parses the first statement of a file of variables. ok is false at the end of the file, and where dotenv
// fails.
func statement(text string) (name, value string, quote byte, rest string, ok bool) {
	for {
		if text = strings.TrimLeftFunc(text, unicode.IsSpace); text == "" {
			return "", "", 0, "", false
		}
		if text[0] != '#' {
			break
		}
		if _, text, ok = strings.Cut(text, "\n"); !ok {
			return "", "", 0, "", false
		}
	}
	if after, is := strings.CutPrefix(text, "export"); is && after != "" && strings.ContainsRune(" \t\n\f\r", rune(after[0])) {
		text = strings.TrimLeftFunc(after, blank)
	}
	i := strings.IndexAny(text, "=:\n")
	if i < 0 {
		return "", text, 0, "", true // a value without a name, for dotenv
	}
	name, rest = strings.TrimRightFunc(text[:i], unicode.IsSpace), strings.TrimLeftFunc(text[i+1:], blank)
	if text[i] == '\n' {
		return name, "", 0, rest, true
	}
	if rest == "" || rest[0] != '"' && rest[0] != '\'' {
		value, rest, _ = strings.Cut(rest, "\n")
		return name, value, 0, rest, true
	}
	for quote, i = rest[0], 1; i < len(rest) && rest[i] != quote; i++ {
		if rest[i] == '\\' {
			i++
		}
	}
	if i >= len(rest) {
		return "", "", 0, "", false
	}
	return name, rest[1:i], quote, rest[i+1:], true
}

// blank reports whether a rune is a space that dotenv skips within a line.
func blank(r rune) bool { return r != '\n' && strings.ContainsRune("\t\v\f\r \u0085\u00a0", r) }

// measureFiles adds the size of files of variables that are read one after the other.
func (l *loading) measureFiles(files []string, env map[string]string) error {
	sizes := map[string]int{}
	for _, file := range files {
		content, err := hostpath.ReadFile(file, maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue // compose-go reports it if the file is required
		}
		if err != nil {
			return err
		}
		if err := l.grow(file, variables(string(content), env, sizes)); err != nil {
			return err
		}
	}
	return nil
}

// measure adds the size of a file's documents with variables expanded, without the services that are extended. Each
// document counts with all before it, because compose-go merges and validates the whole project after each.
func (l *loading) measure(file string, docs []map[string]any, env types.Mapping) error {
	total, merged := 0, 0
	for _, doc := range docs {
		merged += weigher(env).weight(doc)
		services, _ := doc["services"].(map[string]any)
		for _, value := range services {
			merged = min(merged+weigher(env).ports(value), maxSize+1)
		}
		total = min(total+merged, maxSize+1)
	}
	if l.weights == nil {
		l.weights = map[string]int{}
	}
	l.weights[file] = max(total, l.weights[file])
	return l.grow(file, total)
}

// measureExtended adds the size of services that extend others. It is called after all included files were scanned. An
// extended service that is not in the same document counts as the sum of all files.
func (l *loading) measureExtended(file string, docs []map[string]any, env types.Mapping) error {
	most := 0
	for _, n := range l.weights {
		most = min(most+n, maxSize+1)
	}
	for _, doc := range docs {
		e := extending{weigher(env), map[string]int{}, most, nil}
		e.services, _ = doc["services"].(map[string]any)
		for name := range e.services {
			if svc, _ := e.services[name].(map[string]any); svc["extends"] != nil {
				if err := l.grow(file, e.weight(name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// weigher computes upper bounds for the size of values. Its entries are the project's variables.
type weigher types.Mapping

func (w weigher) sizeOf(name string) int { return len(w[name]) }

func (w weigher) weight(value any) int {
	n := valueSize
	switch value := value.(type) {
	case string:
		n += maxExpansion(value, w.sizeOf)
	case []any:
		n += len(value) * len(value) / valueSize // lists are merged item by item
		for _, item := range value {
			if n > maxSize {
				return n
			}
			n += w.weight(item) + w.bare(item)
		}
	case map[string]any:
		for key, item := range value {
			if n > maxSize {
				return n
			}
			n += len(key) + w.weight(item)
			if item == nil {
				n += w.sizeOf(key)
			}
		}
	}
	return n
}

// bare returns the size of an item that is only a variable's name, as in environment: [NAME].
func (w weigher) bare(item any) int {
	text, ok := item.(string)
	if !ok || len(text) > 1<<10 {
		return 0
	}
	name, err := substitute(text, types.Mapping(w))
	if err != nil {
		return 0
	}
	return w.sizeOf(name)
}

// ports returns the size of a service's ports.
func (w weigher) ports(service any) int {
	svc, _ := service.(map[string]any)
	n := 0
	for _, list := range []any{svc["ports"], svc["expose"]} {
		for _, item := range listOf(list) {
			if text, err := substitute(item, types.Mapping(w)); err == nil {
				n = min(n+countPorts(text)*portSize, maxSize+1)
			}
		}
	}
	return n
}

// extending computes upper bounds for the size of a document's services, including services that they extend.
type extending struct {
	weigher
	known    map[string]int
	most     int // size of a service that is not in the document
	services map[string]any
}

func (e *extending) weight(name string) int {
	if n, ok := e.known[name]; ok {
		return n
	}
	svc, ok := e.services[name].(map[string]any)
	if !ok {
		return e.most
	}
	e.known[name] = 0 // in case of a cycle, which compose-go rejects
	n := e.weigher.weight(svc) + e.ports(svc)
	switch extends := svc["extends"].(type) {
	case string:
		n += e.weight(extends)
	case map[string]any:
		if name, _ := extends["service"].(string); extends["file"] == nil {
			n += e.weight(name)
		} else {
			n += e.most
		}
	}
	n = min(n, maxSize+1)
	e.known[name] = n
	return n
}

// portRange matches ranges of ports.
var portRange = regexp.MustCompile(`([0-9]+)-([0-9]+)`)

// countPorts returns the number of ports in a text such as 8000-8009:80-89/udp.
func countPorts(text string) int {
	n := 1
	for _, m := range portRange.FindAllStringSubmatch(text, -1) {
		first, err := strconv.Atoi(m[1])
		last, lerr := strconv.Atoi(m[2])
		if err == nil && lerr == nil { // compose-go rejects others
			n = max(n, min(last-first+1, 1<<16))
		}
	}
	return n
}
