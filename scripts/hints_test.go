package scripts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goName matches names of Go that have a dot or two capitals, such as Limits.PIDs and AllowUnsafe.
var goName = regexp.MustCompile(`\b[A-Z][A-Za-z]*\.[A-Z][A-Za-z]+|\b[A-Z][a-z]+[A-Z][A-Za-z]+`)

// notGo are names that only look like names of Go.
var notGo = []string{"BuildKit", "Dockerfile.NAME", "NAME.Dockerfile"}

// onlyGo are the hints that only callers of the library get: no command of the CLI can cause their errors.
var onlyGo = []string{"leave Network.Allow empty", "use Open or ReadRange, or raise the limit"}

// TestHints checks that the hints of errors have no names of Go, because users of the command line get them too.
func TestHints(t *testing.T) {
	n := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == "testdata" || d.Name() == "conformance" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2) {
				return fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, hint := range hintsIn(file) {
			n++
			for _, name := range goName.FindAllString(hint, -1) {
				if !slices.Contains(notGo, name) && !slices.Contains(onlyGo, hint) {
					t.Errorf("%s: hint %q has the name %s of Go", path, hint, name)
				}
			}
		}
		return nil
	})
	if err != nil || n < 50 {
		t.Errorf("%d hints, %v", n, err)
	}
}

// hintsIn returns the text literals in fields Hint, and in assignments to such a field.
func hintsIn(file *ast.File) (hints []string) {
	texts := func(e ast.Node) {
		ast.Inspect(e, func(n ast.Node) bool {
			if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					hints = append(hints, text)
				}
			}
			return true
		})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, is := n.Key.(*ast.Ident); is && key.Name == "Hint" {
				texts(n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if s, is := left.(*ast.SelectorExpr); is && s.Sel.Name == "Hint" && len(n.Rhs) == len(n.Lhs) {
					texts(n.Rhs[i])
				}
			}
		case *ast.ValueSpec: // constants such as UnheldHint
			for i, name := range n.Names {
				if strings.HasSuffix(name.Name, "Hint") && i < len(n.Values) {
					texts(n.Values[i])
				}
			}
		}
		return true
	})
	return hints
}
