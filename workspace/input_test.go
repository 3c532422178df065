//go:build unix

package workspace

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/tier"
)

func TestPathsInAFolderAreRelativeAndClean(t *testing.T) {
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

func TestInputsOfEveryFormatComeBackAsValues(t *testing.T) {
	table := [][]string{{"a", "b,\"c\""}, {"1\n2", "é"}}
	for name, value := range map[string]any{
		"a.txt": "text é\n", "a.bin": []byte{0, 1, 0xff}, "a.json": map[string]row{"x": {"<one>", 1}}, "sub/dir/a.jsonl": []row{{"one", 1}, {"two", 2}},
		"a.csv": table, "a.tsv": table, "a.yaml": []row{{"one", 1}}, "a.yml": row{"two", 2},
	} {
		for _, end := range []string{"", ".gz", ".xz", ".zst"} {
			dir := t.TempDir()
			if err := WriteInputs(t.Context(), dir, []Input{{Path: name + end, Value: value}}); err != nil {
				t.Errorf("%s%s: %v", name, end, err)
				continue
			}
			into := reflect.New(reflect.TypeOf(value))
			if err := ReadInput(t.Context(), dir, name+end, "", into.Interface()); err != nil || !reflect.DeepEqual(into.Elem().Interface(), value) {
				t.Errorf("%s%s: %v, %v", name, end, into.Elem(), err)
			}
			data, err := os.ReadFile(filepath.Join(dir, name+end))
			if c := formatCompression(end); err != nil || !bytes.HasPrefix(data, magic[c]) {
				t.Errorf("%s%s is not compressed: %q, %v", name, end, data, err)
			}
		}
	}
}

func formatCompression(end string) Compression { _, c := formatOf("a" + end); return c }

func TestInputsAreReadWhereTheyDoNotSayTheirType(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.txt": "text", "a.json": `{"n": 1}`, "a.jsonl": "{\"n\":1}\n\n2\r\n", "a.csv": "a,b\nc\n", "a.tsv": "a\tb\n", "a.yaml": "n: 1\n", "rows": "[1]",
	})
	for name, want := range map[string]any{
		"a.txt": "text", "a.json": map[string]any{"n": 1.0}, "a.jsonl": []any{map[string]any{"n": 1.0}, 2.0}, "a.csv": [][]string{{"a", "b"}, {"c"}},
		"a.tsv": [][]string{{"a", "b"}}, "a.yaml": map[string]any{"n": 1}, "rows": []byte("[1]"),
	} {
		var got any
		if err := ReadInput(t.Context(), dir, name, "", &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v", name, got, err)
		}
	}
	var list []int
	if err := ReadInput(t.Context(), dir, "rows", JSON, &list); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if out, err := exec.Command("bzip2", "-k", filepath.Join(dir, "a.json")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	var n struct{ N int }
	if err := ReadInput(t.Context(), dir, "a.json.bz2", "", &n); err != nil || n.N != 1 {
		t.Errorf("%v, %v", n, err)
	}
}

func TestInputsAreWrittenAsTheyAreAndReplaceWhatIsThere(t *testing.T) {
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

func TestInputsNeverLeaveTheFolder(t *testing.T) {
	outside := tree(t, map[string]string{"secret": "s"})
	dir := tree(t, map[string]string{"out": "->" + outside, "file": "->" + outside + "/secret", "in": "->sub", "sub/a": "1"})
	for _, name := range []string{"../x", "/x", "out/x", "out/sub/x"} {
		if err := WriteInputs(t.Context(), dir, []Input{{Path: name, Content: []byte("x")}}); err == nil {
			t.Errorf("%s is written", name)
		}
	}
	only(t, outside, "secret")
	var got string
	for _, name := range []string{"out/secret", "file", "../" + filepath.Base(outside) + "/secret"} {
		if err := ReadInput(t.Context(), dir, name, Text, &got); err == nil || got != "" {
			t.Errorf("%s is read: %q", name, got)
		}
	}
	if err := ReadInput(t.Context(), dir, "in/a", Text, &got); err != nil || got != "1" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWrongInputsAreErrorsOfTheirClass(t *testing.T) {
	dir := tree(t, map[string]string{"d/": "", "bad.json": "{", "bad.jsonl": "1\n{\n", "bad.csv": "\"a", "bad.yaml": "a: b: c", "bad.txt": "\xff", "a.txt": "x", "a.gz": "x"})
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
		{Input{Path: "a", Value: 1, Format: "toml"}, fumehood.ErrConfig, `no format "toml"`},
		{Input{Path: "a.json.bz2", Value: 1}, fumehood.ErrUnsupported, "bz2"},
		{Input{Path: "a", Value: "x", Mode: os.ModeSetuid | 0o755}, fumehood.ErrConfig, "permission bits"},
	} {
		if err := WriteInputs(t.Context(), dir, []Input{c.in}); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.in, err)
		}
	}
	for name, c := range map[string]struct {
		class error
		says  string
	}{
		"bad.json": {fumehood.ErrConfig, "unexpected end"}, "bad.jsonl": {fumehood.ErrConfig, "line 2"}, "bad.csv": {fumehood.ErrConfig, "line 1"},
		"bad.yaml": {fumehood.ErrConfig, "mapping"}, "bad.txt": {fumehood.ErrConfig, "UTF-8"}, "nope": {fumehood.ErrNotFound, "nope"},
		"d": {fumehood.ErrIsDirectory, "read input d"}, "pipe": {fumehood.ErrNotRegular, "pipe"},
	} {
		var v any
		if err := ReadInput(t.Context(), dir, name, "", &v); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnInputThatUnfoldsTooFarIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	const part = 1 << 20
	if err := WriteInputs(t.Context(), dir, []Input{{Path: "part.bin.zst", Value: make([]byte, part)}}); err != nil {
		t.Fatal(err)
	}
	frame, err := os.ReadFile(filepath.Join(dir, "part.bin.zst"))
	if err != nil {
		t.Fatal(err)
	}
	const limit = 3 * part
	for frames, class := range map[int]error{limit / part: nil, limit/part + 1: fumehood.ErrTooLarge} {
		data, err := readAll(t.Context(), bytes.NewReader(bytes.Repeat(frame, frames)), true, limit)
		if !errors.Is(err, class) || class == nil && len(data) != limit || class != nil && !strings.Contains(err.Error(), "3145728") {
			t.Errorf("%d MiB: %d bytes, %v", frames, len(data), err)
		}
	}
	tier.Need(t, tier.CI) // with the real limit it takes seconds
	if err := os.WriteFile(filepath.Join(dir, "bomb.bin.zst"), bytes.Repeat(frame, MaxInput/part+1), 0o600); err != nil {
		t.Fatal(err)
	}
	var data []byte
	if err := ReadInput(t.Context(), dir, "bomb.bin.zst", "", &data); !errors.Is(err, fumehood.ErrTooLarge) || !strings.Contains(err.Error(), "268435456") {
		t.Errorf("%v", err)
	}
}
