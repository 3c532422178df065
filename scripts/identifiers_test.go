package scripts_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxPackages is how many packages may have a function or method with the same unexported name of one word: a search for
// a name must find what it means. Tests do not count.
const maxPackages = 10

// vague are names of variables, parameters and fields that say nothing about the value.
var vague = []string{"what", "of", "ours", "theirs", "told", "tells", "said"}

// irregular are participles that do not end in -ed, unless they are verbs or nouns too.
var irregular = strings.Fields("begun bound broken brought built chosen done drawn driven fallen felt forgotten found frozen " +
	"given gone grown held hidden kept known laid left lent lost made meant met proven rebuilt said seen sent shown shut spent " +
	"spoken stolen taken taught thrown told undone unfound unheld worn written")

// regular are verbs and nouns that end in -ed.
var regular = strings.Fields("bed bleed breed embed exceed feed need proceed red seed shed speed succeed")

// prepositions after a participle make a name that begins with it one of the same kind, such as keptBy.
var prepositions = strings.Fields("as at by for from in into of on out to under until up with")

// participles are the functions and methods that may be called so, with the reason.
var participles = map[string]string{
	"Detached": "public: it lists the detached commands",
	"Done":     "like the method of context.Context",
	"Kept":     "public: it lists the kept sandboxes",
	"Resolved": "public: it is the resolved form of a file",
}

// TestIdentifiers checks the names of functions, methods, variables, parameters and fields.
func TestIdentifiers(t *testing.T) {
	var ids identifiers
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2) {
				return fs.SkipDir
			}
			return err
		}
		if strings.HasSuffix(path, ".go") {
			return ids.add(path, nil)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(ids.problems, ids.frequent()...) {
		t.Error(p)
	}
}

func TestIdentifiers_examples(t *testing.T) {
	for source, want := range map[string]string{
		"func failed() error":                "a.go:3: failed: a function is a verb or a noun",
		"func fail() error":                  "",
		"func failedStart() error":           "", // a noun
		"func keptBy(user string) []string":  "a.go:3: keptBy: a function is a verb or a noun",
		"func (t T) Written() []byte":        "a.go:3: Written: a function is a verb or a noun",
		"func written() (ok bool)":           "", // a predicate
		"func written() (bool, error)":       "",
		"func written() (int, bool)":         "a.go:3: written: a function is a verb or a noun",
		"func feed() error":                  "",
		"func Done() <-chan struct{}":        "",
		"type T interface{ broken() error }": "a.go:3: broken: a function is a verb or a noun",
		"type T interface{ error }":          "",
		"type T struct{ told int }":          "a.go:3: told: the name says nothing about the value",
		"type T struct{ outcome int }":       "",
		"func f(what string)":                "a.go:3: what: the name says nothing about the value",
		"func f() (ours, own int)":           "a.go:3: ours: the name says nothing about the value",
		"var theirs int":                     "a.go:3: theirs: the name says nothing about the value",
		"func f() { for of := range 3 {} }":  "a.go:3: of: the name says nothing about the value",
		"func f() { said, err := g() }":      "a.go:3: said: the name says nothing about the value",
		"func f() { message, err := g() }":   "",
	} {
		var ids identifiers
		if err := ids.add("a.go", "package p\n\n"+source); err != nil {
			t.Error(err)
		}
		if got := strings.Join(ids.problems, "\n"); got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

func TestIdentifiers_frequent(t *testing.T) {
	var ids identifiers
	for i := range maxPackages + 1 {
		for _, file := range []string{"a.go", "b.go", "a_test.go"} {
			source := "package p\nfunc start()\nfunc startGuest()\nfunc Start()\n"
			if i < maxPackages {
				source += "func (t T) stop()\n"
			}
			if err := ids.add(fmt.Sprintf("p%d/%s", i, file), source); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := ids.frequent()
	if len(got) != 1 || !strings.HasPrefix(got[0], "start: functions of 11 packages have this name: p0 p1 p10 ") {
		t.Errorf("got %q, want start", got)
	}
}

// identifiers collects what is wrong with the names that files declare.
type identifiers struct {
	problems []string
	packages map[string]map[string]bool // folders with functions of a name of one word
}

// add checks the names in a file.
func (ids *identifiers) add(path string, source any) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(path, "_test.go")
	reject := func(id *ast.Ident, problem string) {
		ids.problems = append(ids.problems, fmt.Sprintf("%s:%d: %s: %s", path, fset.Position(id.Pos()).Line, id.Name, problem))
	}
	values := func(names ...ast.Expr) {
		for _, n := range names {
			if id, ok := n.(*ast.Ident); ok && slices.Contains(vague, id.Name) {
				reject(id, "the name says nothing about the value")
			}
		}
	}
	function := func(id *ast.Ident, t *ast.FuncType) {
		if test {
			return
		}
		if isParticiple(id.Name) && !isPredicate(t) && participles[id.Name] == "" {
			reject(id, "a function is a verb or a noun")
		}
		if id.Name == strings.ToLower(id.Name) && id.Name != "init" && id.Name != "main" {
			if ids.packages == nil {
				ids.packages = map[string]map[string]bool{}
			}
			if ids.packages[id.Name] == nil {
				ids.packages[id.Name] = map[string]bool{}
			}
			ids.packages[id.Name][filepath.Dir(path)] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			function(n.Name, n.Type)
		case *ast.Field:
			for _, id := range n.Names {
				values(id)
			}
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				if f, ok := m.Type.(*ast.FuncType); ok {
					function(m.Names[0], f)
				}
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				values(id)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				values(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				values(n.Key, n.Value)
			}
		}
		return true
	})
	return nil
}

// frequent returns a problem for each name of functions in too many packages.
func (ids *identifiers) frequent() (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(ids.packages)) {
		if folders := slices.Sorted(maps.Keys(ids.packages[name])); len(folders) > maxPackages {
			problems = append(problems, fmt.Sprintf("%s: functions of %d packages have this name: %s", name, len(folders), strings.Join(folders, " ")))
		}
	}
	return problems
}

// isPredicate reports whether a function answers a question: it returns one bool, or a bool and an error.
func isPredicate(f *ast.FuncType) bool {
	var types []string
	if f.Results != nil {
		for _, r := range f.Results.List {
			for range max(1, len(r.Names)) {
				types = append(types, fmt.Sprint(r.Type))
			}
		}
	}
	return slices.Equal(types, []string{"bool"}) || slices.Equal(types, []string{"bool", "error"})
}

// word matches the words of a name.
var word = regexp.MustCompile(`[A-Z]*[^A-Z]+`)

// isParticiple reports whether a name is a participle, or begins with one and a preposition.
func isParticiple(name string) bool {
	words := word.FindAllString(name, -1)
	if len(words) == 0 || len(words) > 1 && !slices.Contains(prepositions, strings.ToLower(words[1])) {
		return false
	}
	first := strings.ToLower(words[0])
	return slices.Contains(irregular, first) || strings.HasSuffix(first, "ed") && !slices.Contains(regular, first)
}
