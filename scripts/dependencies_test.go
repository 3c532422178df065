package scripts

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"golang.org/x/mod/modfile"
)

// TestDependencies checks that docs/design/dependencies.md has a line for each direct dependency, and for no other module.
func TestDependencies(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Mod.Path)
		}
	}
	page, err := os.ReadFile("../docs/design/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(page, -1) {
		listed = append(listed, string(m[1]))
	}
	slices.Sort(direct)
	slices.Sort(listed)
	if len(direct) == 0 || !slices.Equal(direct, listed) {
		t.Errorf("direct dependencies are\n%q\nand the page has\n%q", direct, listed)
	}
}
