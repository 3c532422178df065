package scripts_test

import (
	"flag"
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

var updateAPI = flag.Bool("update-api", false, "update "+apiFile)

const (
	apiFile = "../docs/api.txt"
	prefix  = "github.com/fumehood/fumehood"
)

// TestPublicAPI compares the exported API with docs/api.txt, so that no change of it goes unnoticed.
func TestPublicAPI(t *testing.T) {
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedExportFile, Dir: "..", Env: append(os.Environ(), "GOOS=linux", "GOARCH=amd64"),
	}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range all {
		for _, err := range p.Errors {
			t.Error(err)
		}
		if path := strings.TrimPrefix(p.PkgPath, prefix); p.Name != "main" && !strings.Contains(path, "/internal") && !strings.HasPrefix(path, "/test/") {
			lines = append(lines, exported(p.Types)...)
		}
	}
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	if *updateAPI {
		if err := os.WriteFile(apiFile, []byte(text), 0o644); err != nil { //nolint:gosec // a page of the docs
			t.Fatal(err)
		}
	}
	listed, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(strings.TrimSuffix(string(listed), "\n"), "\n")
	for _, l := range lines {
		if !slices.Contains(was, l) {
			t.Errorf("new: %s", l)
		}
	}
	for _, l := range was {
		if !slices.Contains(lines, l) {
			t.Errorf("gone: %s", l)
		}
	}
	if t.Failed() {
		t.Log("if this change is intended: go test ./scripts -run PublicAPI -args -update-api")
	}
}

// exported returns the exported names of a package, each with its type on a line.
func exported(p *types.Package) (lines []string) {
	add := func(format string, a ...any) {
		path := strings.TrimPrefix(p.Path(), prefix)
		lines = append(lines, "fumehood"+path+": "+fmt.Sprintf(format, a...))
	}
	short := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	for _, name := range p.Scope().Names() {
		obj := p.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		if c, is := obj.(*types.Const); is {
			add("const %s %s = %s", name, types.TypeString(c.Type(), short), c.Val())
			continue
		}
		if _, is := obj.(*types.TypeName); !is {
			add("%s", types.ObjectString(obj, short))
			continue
		}
		s, isStruct := obj.Type().Underlying().(*types.Struct)
		if !isStruct {
			if _, is := obj.Type().Underlying().(*types.Interface); is {
				add("type %s interface", name)
			} else {
				add("type %s %s", name, types.TypeString(obj.Type().Underlying(), short))
			}
		} else {
			add("type %s struct", name)
			for f := range s.Fields() {
				if f.Exported() {
					add("type %s struct, %s %s", name, f.Name(), types.TypeString(f.Type(), short))
				}
			}
		}
		receiver := obj.Type()
		if !types.IsInterface(receiver) {
			receiver = types.NewPointer(receiver)
		}
		for m := range types.NewMethodSet(receiver).Methods() {
			if f := m.Obj(); f.Exported() {
				add("method %s.%s%s", name, f.Name(), strings.TrimPrefix(types.TypeString(f.Type(), short), "func"))
			}
		}
	}
	return lines
}
