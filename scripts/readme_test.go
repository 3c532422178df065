package scripts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The first commands in README.md are those that CI runs.
func TestReadme_firstCommands(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "```\n")
	block, _, _ = strings.Cut(block, "```\n")
	var commands []string
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "#")
		commands = append(commands, strings.TrimSpace(command))
	}
	if len(commands) != 3 || !strings.HasPrefix(commands[0], "git clone ") || !slices.Equal(commands[1:], []string{"make demo", "make test"}) {
		t.Fatalf("the first commands are %q", commands)
	}
	for _, command := range commands[1:] {
		if name := strings.TrimPrefix(command, "make "); !strings.Contains(string(ci), "\nstep \""+name+"\" "+command+"\n") {
			t.Errorf(".ci/run does not run %q as it is", command)
		}
	}
}

// No page advises what works only once the program and the package are published.
func TestDocs_unpublished(t *testing.T) {
	t.Parallel()
	published := regexp.MustCompile(`go (install|run|get) github\.com/fumehood/\S*@|(pip|uv|pipx|uvx)( \w+)* ["']?fumehood\b[^/]|brew install fumehood`)
	for _, text := range []string{"go install github.com/fumehood/fumehood/cmd/fumehood@latest", "pip install 'fumehood[inspect]'\n", "uv pip install fumehood\n"} {
		if !published.MatchString(text) {
			t.Errorf("%q is not found", text)
		}
	}
	pages := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains([]string{".git", ".venv", "bin", "dist", "fumehood-runs", "node_modules"}, e.Name()):
			return filepath.SkipDir
		case !slices.Contains([]string{".md", ".py", ".txtar", ".toml"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		pages++
		for _, found := range published.FindAllString(string(text), -1) {
			t.Errorf("%s: %q", path, found)
		}
		return err
	})
	if err != nil || pages < 50 {
		t.Errorf("%d files, %v", pages, err)
	}
}

// The pages that say where things are name files that exist.
func TestArchitecture_paths(t *testing.T) {
	t.Parallel()
	// "testdata" is said relative to a package.
	path := regexp.MustCompile("`((?:api|clients|cmd|docs|eval|examples|internal|journal|provider|scripts|session|test|tools)/[\\w./*-]+)`")
	for _, page := range []string{"../docs/ARCHITECTURE.md", "../docs/design/README.md", "../docs/design/sandbox.md", "../docs/design/providers.md", "../CONTRIBUTING.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all := path.FindAllStringSubmatch(string(text), -1)
		if len(all) < 3 {
			t.Errorf("%s names %d paths", page, len(all))
		}
		for _, p := range all {
			if found, err := filepath.Glob("../" + p[1]); err != nil || len(found) == 0 {
				t.Errorf("%s: %s does not exist", page, p[1])
			}
		}
	}
}
