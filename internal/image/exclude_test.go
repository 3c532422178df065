package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestSecrets(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	if err := os.Symlink("tests", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var s Secrets
	s.Add(in("task.yaml", "link/hidden")...)
	s.Add("")
	for sample, files := range map[string][]string{"a": in("shared", "a"), "b": in("shared", "b", "of-b-and-c"), "c": in("shared", "of-b-and-c")} {
		s.AddOf(sample, append(files, "")...)
	}
	for samples, want := range map[string][]string{
		"a":     in("b", "of-b-and-c", "task.yaml", "tests/hidden"),
		"b":     in("a", "task.yaml", "tests/hidden"),
		"b c":   in("a", "b", "task.yaml", "tests/hidden"),
		"a b c": in("a", "b", "of-b-and-c", "task.yaml", "tests/hidden"),
	} {
		if got := s.Exclude(strings.Fields(samples)); !slices.Equal(got, want) {
			t.Errorf("of %s: got %q, want %q", samples, got, want)
		}
	}
	var none Secrets
	if got := none.Exclude([]string{"a"}); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestNewTree_Exclude(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kept/file", "runs/1/results", "runs-of-others/file", "task.yaml", ".dockerignore"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("!runs\n!task.yaml\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	exclude := []string{filepath.Join(dir, "runs"), filepath.Join(dir, "task.yaml"), filepath.Join(dir, "none"), "/elsewhere"}
	for _, path := range []string{dir, link} { // also through a link
		tree, err := Context(t.Context(), path, "", Options{Exclude: exclude})
		if err != nil {
			t.Fatal(err)
		}
		got, err := sent(t, "", tree)
		if err != nil {
			t.Error(err)
		}
		if want := []string{".dockerignore", "kept/", "kept/file", "runs-of-others/", "runs-of-others/file"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
		for _, above := range []string{dir, filepath.Dir(dir)} {
			if _, err := Context(t.Context(), path, "", Options{Exclude: []string{above}}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "images cannot be built from "+above) {
				t.Errorf("%s in %s: got %v", path, above, err)
			}
		}
	}
}
