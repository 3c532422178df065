package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

func TestParse_bases(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		args map[string]string
		want []string
	}{
		"one":                       {text: "FROM a:1\nRUN x", want: []string{"a:1"}},
		"stages":                    {text: "FROM a AS One\nFROM b\nCOPY --from=one /x /\nCOPY --from=0 /x /\nFROM one", want: []string{"a", "b"}},
		"copied from":               {text: "FROM a\nCOPY --from=tools:2 /x /", want: []string{"a", "tools:2"}},
		"scratch":                   {text: "FROM scratch\nCOPY x /", want: nil},
		"twice":                     {text: "FROM a\nFROM a", want: []string{"a"}},
		"with a platform":           {text: "from --platform=linux/amd64 a as b", want: []string{"a"}},
		"an argument's default":     {text: "ARG V=1\nARG W=$V.2\nFROM a:${W}", want: []string{"a:1.2"}},
		"an argument that is given": {text: "ARG V=1\nFROM a:${V}", args: map[string]string{"V": "3"}, want: []string{"a:3"}},
		"an argument of a stage":    {text: "ARG V=1\nFROM a\nARG V=2\nFROM b:$V", want: []string{"a", "b:1"}},
		"an expression":             {text: "FROM a:${V:-9}", want: []string{"a:9"}},
		"other words for escape":    {text: "# escape=`\nFROM `\n a", want: []string{"a"}},
		"comments":                  {text: "# FROM x\nFROM a\n# FROM y", want: []string{"a"}},
	} {
		read, err := Parse(c.text, c.args)
		got := read.Bases
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestDockerfile_Renamed(t *testing.T) {
	names := map[string]string{"base": "new:1", "a:1.2": "new:2"}
	for name, c := range map[string]struct{ text, want string }{
		"from":         {"FROM base\nRUN echo base", "FROM new:1\nRUN echo base"},
		"as_itself":    {"FROM base AS base\nFROM base", "FROM new:1 AS base\nFROM base"},
		"platform":     {"FROM --platform=base base", "FROM --platform=base new:1"},
		"argument":     {"ARG V=1\nFROM a:${V}.2 as x", "ARG V=1\nFROM new:2 as x"},
		"continued":    {"FROM \\\n  # base\n  base\nRUN x", "FROM \\\n  # base\n  new:1\nRUN x"},
		"two_lines":    {"FROM x\r\nFROM base\r\n", "FROM x\r\nFROM new:1\r\n"},
		"longer_name":  {"FROM base:1\nFROM database", "FROM base:1\nFROM database"},
		"copy":         {"FROM x\nCOPY --chown=1 --from=base base /base", "FROM x\nCOPY --chown=1 --from=new:1 base /base"},
		"copy_longer":  {"FROM x\nCOPY --from=base2 base /", "FROM x\nCOPY --from=base2 base /"},
		"mount":        {"FROM x\nRUN --mount=type=bind,from=base,target=/t --mount=from=base,target=/u from=base", "FROM x\nRUN --mount=type=bind,from=new:1,target=/t --mount=from=new:1,target=/u from=base"},
		"stage":        {"FROM x AS base\nCOPY --from=base /a /", "FROM x AS base\nCOPY --from=base /a /"},
		"heredoc_text": {"FROM base\nRUN <<E\nFROM base\nE\n", "FROM new:1\nRUN <<E\nFROM base\nE\n"},
	} {
		t.Run(name, func(t *testing.T) {
			read, err := Parse(c.text, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := read.Rename(names); err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// sent returns the names of the entries of a context.
func sent(t *testing.T, dockerfile string, tree *Tree) (names []string, err error) {
	err = Send(t.Context(), "Dockerfile", dockerfile, []*Tree{tree}, func(content io.Reader) error {
		for r := tar.NewReader(content); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			names = append(names, h.Name)
		}
	})
	return names, err
}

func TestSend_changed(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{"x": "1", "d/y": "2"})
	looked, err := NewTree(t.Context(), dir, "below")
	if err != nil {
		t.Fatal(err)
	}
	names := func() ([]string, error) { return sent(t, "FROM a", looked) }
	got, err := names()
	if want := []string{"Dockerfile", "below/", "below/d/", "below/d/y", "below/x"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := names(); !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "changed while") {
		t.Errorf("got %v", err)
	}
}

func TestParse_needs(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		needs   []string
		heredoc int
		syntax  string
	}{
		"nothing":          {text: "FROM a\nRUN --help\nCOPY --chown=1 --from=b x /"},
		"a mount":          {text: "FROM a\n\nRUN --mount=type=cache,target=/x \\\n  make", needs: []string{"line 3: RUN --mount"}},
		"several":          {text: "FROM a\nCOPY --link --chmod=755 x /\nADD --checksum=x http://y /", needs: []string{"line 2: COPY --link", "line 2: COPY --chmod", "line 3: ADD --checksum"}},
		"a heredoc":        {text: "FROM a\nRUN <<EOF\nFROM b\nEOF\nCOPY <<X /x\n1\nX\n", needs: []string{"line 2: a heredoc", "line 5: a heredoc"}, heredoc: 2},
		"another's syntax": {text: "# syntax=docker/dockerfile:1\nFROM a", syntax: "docker/dockerfile:1"},
	} {
		got, err := Parse(c.text, nil)
		if err != nil || !slices.Equal(got.Needs, c.needs) || got.Heredoc != c.heredoc || got.Syntax != c.syntax {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	got, err := Parse("FROM a AS one\nRUN --mount=type=bind,from=tools,target=/t --mount=from=one,target=/o x", nil)
	if err != nil || !slices.Equal(got.Bases, []string{"a", "tools"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestContext_ownIgnoreList(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{"x.Dockerfile": "FROM a", "x.Dockerfile.dockerignore": "one", ".dockerignore": "*", "one": "1", "two": "2", "link": "-> /etc/passwd"})
	if _, err := Context(t.Context(), dir, "x.Dockerfile", Options{}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a link that leads out: got %v", err)
	}
	tree, err := Context(t.Context(), dir, "x.Dockerfile", Options{AnyLinks: true})
	if err != nil {
		t.Fatal(err)
	}
	names, err := sent(t, "", tree)
	if err != nil {
		t.Error(err)
	}
	if want := []string{".dockerignore", "link", "two", "x.Dockerfile", "x.Dockerfile.dockerignore"}; !slices.Equal(names, want) || !tree.HasDockerfile() {
		t.Errorf("got %q, %v", names, tree.HasDockerfile())
	}
}

func TestContext_ignoresItself(t *testing.T) {
	for list, want := range map[string]string{
		"Dockerfile\n.dockerignore": "one",
		"*\n!one":                   "one",
		".d*":                       "Dockerfile one",
		"**":                        "",
		"*\n!D*":                    "Dockerfile",
	} {
		dir := filetest.Lay(t, map[string]string{"Dockerfile": "FROM a", ".dockerignore": list, "one": "1"})
		tree, err := Context(t.Context(), dir, "Dockerfile", Options{})
		if err != nil {
			t.Fatal(err)
		}
		names, err := sent(t, "", tree)
		if got := strings.Join(names, " "); err != nil || got != want || tree.HasDockerfile() != strings.Contains(want, "D") {
			t.Errorf("%q: got %q, %v, %v", list, got, tree.HasDockerfile(), err)
		}
	}
}
