//go:build unix

package workspace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestCleanPath(t *testing.T) {
	for p, want := range map[string]string{"a": "a", "a/b.txt": "a/b.txt", "./a//b/": "a/b", "..a/...": "..a/..."} {
		if got, err := CleanPath(p); err != nil || got != want {
			t.Errorf("%q: %q, %v", p, got, err)
		}
	}
	for _, p := range []string{"", ".", "./", "/a", "..", "../a", "a/..", "a/../b", "a\\b", "C:a", "a\x00b", strings.Repeat("x", 5000)} {
		if got, err := CleanPath(p); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%.20q: %q, %v", p, got, err)
		}
	}
}

type row struct {
	Name string `json:"name" yaml:"name"`
	N    int    `json:"n" yaml:"n"`
}

func TestWriteInputs_formats(t *testing.T) {
	table := [][]string{{"a", "b,\"c\""}, {"1\n2", "é"}}
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"a.txt":           {"text é\n", "text é\n"},
		"a.bin":           {[]byte{0, 1, 0xff}, "\x00\x01\xff"},
		"a.json":          {map[string]row{"x": {"<one>", 1}}, "{\n  \"x\": {\n    \"name\": \"<one>\",\n    \"n\": 1\n  }\n}\n"},
		"sub/dir/a.jsonl": {[]row{{"one", 1}, {"two", 2}}, "{\"name\":\"one\",\"n\":1}\n{\"name\":\"two\",\"n\":2}\n"},
		"a.csv":           {table, "a,\"b,\"\"c\"\"\"\n\"1\n2\",é\n"},
		"a.tsv":           {table, "a\t\"b,\"\"c\"\"\"\n\"1\n2\"\té\n"},
		"a.yaml":          {[]row{{"one", 1}}, "- name: one\n  \"n\": 1\n"},
		"a.yml":           {row{"two", 2}, "name: two\n\"n\": 2\n"},
	} {
		for _, end := range []string{"", ".gz", ".xz", ".zst"} {
			dir := t.TempDir()
			if err := WriteInputs(t.Context(), dir, []Input{{Path: name + end, Value: c.value}}); err != nil {
				t.Errorf("%s%s: %v", name, end, err)
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name+end))
			if c := compressions[end]; err != nil || !bytes.HasPrefix(data, magic[c]) {
				t.Errorf("%s%s is not compressed: %q, %v", name, end, data, err)
			}
			r, err := decompress(bytes.NewReader(data))
			if err != nil {
				t.Errorf("%s%s: %v", name, end, err)
				continue
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != c.want {
				t.Errorf("%s%s: %q, %v", name, end, got, err)
			}
		}
	}
}

func TestWriteInputs_replace(t *testing.T) {
	dir := tree(t, map[string]string{"old": "old", "l": "->/etc/hostname"})
	source := filepath.Join(tree(t, map[string]string{"f": "from"}), "f")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := WriteInputs(t.Context(), dir, []Input{
		{Path: "old", Content: []byte("new")},
		{Path: "l", Content: []byte{}},
		{Path: "d/data.json.gz", From: source, Mode: 0o755},
		{Path: "pipe", Value: "x", Format: Text},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"old": "new", "l": "", "d/data.json.gz": "from", "pipe": "x"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "d/data.json.gz")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "l")); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestWriteInputs_outside(t *testing.T) {
	outside := tree(t, map[string]string{"secret": "s"})
	dir := tree(t, map[string]string{"out": "->" + outside, "file": "->" + outside + "/secret", "in": "->sub", "sub/a": "1"})
	for _, name := range []string{"../x", "/x", "out/x", "out/sub/x"} {
		if err := WriteInputs(t.Context(), dir, []Input{{Path: name, Content: []byte("x")}}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	only(t, outside, "secret")
}

func TestWriteInputs_invalid(t *testing.T) {
	dir := tree(t, map[string]string{"d/": "", "a.txt": "x"})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in    Input
		class error
		says  string
	}{
		{Input{Path: "a"}, fumehood.ErrConfig, "exactly one"},
		{Input{Path: "a", Content: []byte("x"), Value: 1}, fumehood.ErrConfig, "exactly one"},
		{Input{Path: "d", Content: []byte("x")}, fumehood.ErrIsDirectory, "write input d"},
		{Input{Path: "a", From: filepath.Join(dir, "nope")}, fumehood.ErrNotFound, "nope"},
		{Input{Path: "a", From: filepath.Join(dir, "pipe")}, fumehood.ErrNotRegular, "pipe"},
		{Input{Path: "a.txt/b", Content: []byte("x")}, fumehood.ErrNotDirectory, "a.txt/b"},
		{Input{Path: "a.csv", Value: 1}, fumehood.ErrConfig, "[][]string, not from a int"},
		{Input{Path: "a.jsonl", Value: 1}, fumehood.ErrConfig, "from a slice"},
		{Input{Path: "a.json", Value: func() {}}, fumehood.ErrConfig, "unsupported type"},
		{Input{Path: "b.txt", Value: "\xff"}, fumehood.ErrConfig, "UTF-8"},
		{Input{Path: "a", Value: 1, Format: "toml"}, fumehood.ErrConfig, `unknown format "toml"`},
		{Input{Path: "a.json.bz2", Value: 1}, fumehood.ErrUnsupported, "bz2"},
		{Input{Path: "a", Value: "x", Mode: os.ModeSetuid | 0o755}, fumehood.ErrConfig, "permission bits"},
	} {
		if err := WriteInputs(t.Context(), dir, []Input{c.in}); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.in, err)
		}
	}
}
