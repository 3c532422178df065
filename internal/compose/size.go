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

// A few lines can stand for any amount of text: variables that refer to each other, and references to a long one. What a
// project comes to is estimated before compose-go makes it, and never less than it is.
const (
	// maxSize bounds what a project's files come to: the bytes of their texts and variables, and valueSize for each value.
	maxSize   = 64 << 20
	valueSize = 64
	// maxPorts bounds the ports that one service publishes or exposes: each has a listener on this machine.
	maxPorts = 1000
)

// errSize is the error of a project that comes to more than maxSize.
var errSize = fmt.Errorf("what the project comes to, its variables included, is more than %d MiB", maxSize>>20)

// grow counts what one more file comes to.
func (l *loading) grow(file string, n int) error {
	if l.size += n; l.size > maxSize {
		return fmt.Errorf("%s: %w", file, errSize)
	}
	return nil
}

// refers matches a reference to a variable as compose-go knows it. What is no reference may match too, as in "$$A".
var refers = regexp.MustCompile(`\$\{?((?i:[_a-z][_a-z0-9]*))`)

// expanded bounds the length of a text in which values replace references. It stops counting above maxSize.
func expanded(text string, sizeOf func(name string) int) int {
	n := len(text)
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

// variables bounds the lengths of the variables that a file sets, which may refer to those of env and to earlier ones. It
// adds them to sizes, by name, and returns what it comes to in all. Its syntax is dotenv's.
func variables(text string, env map[string]string, sizes map[string]int) int {
	longest, total := 0, 0
	sizeOf := func(name string) int { return max(len(env[name]), sizes[name]) }
	for _, value := range env {
		longest = max(longest, len(value))
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
		case quote == '"' && strings.Contains(value, `\0`): // an octal escape can be a part of a reference
			if times := strings.Count(value, "$") + strings.Count(value, `\0`); longest > 0 && times > maxSize/longest {
				n = maxSize + 1
			} else {
				n += times * longest
			}
		default:
			n = expanded(value, sizeOf)
		}
		if value == "" { // a name alone has the value that it has elsewhere
			n = sizeOf(name)
		}
		sizes[name] = max(n, sizes[name])
		longest = max(longest, n)
		total += n + valueSize
	}
	return total
}

// statement reads the first statement of a file of variables. Not ok means that there is none, or a wrong one: dotenv goes
// no further either.
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
		return "", "", 0, "", false
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

// measureFiles counts what files of variables come to that are read one after the other.
func (l *loading) measureFiles(files []string, env map[string]string) error {
	sizes := map[string]int{}
	for _, file := range files {
		content, err := hostpath.ReadFile(file, maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue // compose-go reports it, or can do without
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

// measure counts what a document comes to when its variables are set, and its ports.
func (l *loading) measure(file string, doc map[string]any, env types.Mapping) error {
	sizeOf := func(name string) int { return len(env[name]) }
	services, _ := doc["services"].(map[string]any)
	if err := l.grow(file, weight(doc, sizeOf)); err != nil {
		return err
	}
	weights := map[string]int{}
	for name := range services {
		if svc, _ := services[name].(map[string]any); svc["extends"] != nil {
			if err := l.grow(file, extended(services, name, weights, sizeOf)); err != nil {
				return err
			}
		}
	}
	for name, value := range services {
		svc, _ := value.(map[string]any)
		for _, key := range []string{"ports", "expose"} {
			if n := countPorts(svc[key], env); n > maxPorts {
				return fmt.Errorf("%s: services.%s.%s: %d ports are too many: %d at most", file, name, key, n, maxPorts)
			}
		}
	}
	return nil
}

// weight bounds what a value comes to.
func weight(value any, sizeOf func(string) int) int {
	n := valueSize
	switch value := value.(type) {
	case string:
		n += expanded(value, sizeOf)
	case []any:
		for _, item := range value {
			n = min(n+weight(item, sizeOf), maxSize+1)
		}
	case map[string]any:
		for key, item := range value {
			n = min(n+len(key)+weight(item, sizeOf), maxSize+1)
		}
	}
	return n
}

// extended bounds what a service comes to with those of its file that it extends.
func extended(services map[string]any, name string, weights map[string]int, sizeOf func(string) int) int {
	if n, ok := weights[name]; ok {
		return n
	}
	weights[name] = 0 // for a circle, which compose-go refuses
	n := weight(services[name], sizeOf)
	svc, _ := services[name].(map[string]any)
	switch extends := svc["extends"].(type) {
	case string:
		n += extended(services, extends, weights, sizeOf)
	case map[string]any:
		if of, _ := extends["service"].(string); extends["file"] == nil {
			n += extended(services, of, weights, sizeOf)
		}
	}
	n = min(n, maxSize+1)
	weights[name] = n
	return n
}

// portRange matches ranges of ports.
var portRange = regexp.MustCompile(`([0-9]+)-([0-9]+)`)

// countPorts returns how many ports a list of ports has; a range counts by its length.
func countPorts(list any, env types.Mapping) int {
	total := 0
	for _, item := range listOf(list) {
		n := 1
		if text, err := substitute(item, env); err == nil {
			for _, m := range portRange.FindAllStringSubmatch(text, -1) {
				first, _ := strconv.Atoi(m[1])
				last, _ := strconv.Atoi(m[2])
				n = max(n, last-first+1)
			}
		}
		total = min(total+n, 1<<16)
	}
	return total
}
