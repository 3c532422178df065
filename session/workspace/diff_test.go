//go:build unix

package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// two returns two trees that differ in every possible way, except in what git ignores.
func two(t *testing.T) (before, after string) {
	t.Helper()
	lines := func(n int, change string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return strings.Replace(b.String(), "line 10\n", change, 1)
	}
	before = tree(t, map[string]string{
		"same": "1", "text": lines(30, "line 10\n"), "end": "a\nb", "gone": "x\ny\n", "dir/gone": "z", "run": "#!\n", "empty": "", "link": "->same",
		"gone link": "->nowhere", "to link": "text\n", "from link": "->text", "sp ace\t\"é": "1\n", "touched": "t",
	})
	after = tree(t, map[string]string{
		"same": "1", "text": lines(30, "line ten\nand more\n"), "end": "a\nb\n", "new": "x\ny\n", "new dir/f": "no newline", "run": "#!\n", "empty": "full\n", "link": "->text",
		"new link": "->nowhere", "to link": "->same", "from link": "text\n", "sp ace\t\"é": "2\n", "touched": "t", "new empty": "",
	})
	if err := errors.Join(os.Chmod(filepath.Join(after, "run"), 0o755), os.Chtimes(filepath.Join(after, "touched"), then, then.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	return before, after
}

func diff(t *testing.T, before, after Source) []Change {
	t.Helper()
	changes, err := Diff(t.Context(), before, after)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func find(t *testing.T, changes []Change, name string) Change {
	t.Helper()
	for _, c := range changes {
		if c.Path == name {
			return c
		}
	}
	t.Fatalf("no change of %q in %+v", name, changes)
	return Change{}
}

func TestDiff_kinds(t *testing.T) {
	before, after := two(t)
	changes := diff(t, FromDir(before, CreateOptions{}), FromDir(after, CreateOptions{}))
	var got []string
	for _, c := range changes {
		got = append(got, string(c.Kind)+" "+c.Path)
	}
	want := []string{
		"removed dir", "removed dir/gone", "changed empty", "changed end", "changed from link", "removed gone", "removed gone link", "changed link",
		"added new", "added new dir", "added new dir/f", "added new empty", "added new link", "changed run", "changed sp ace\t\"é", "changed text", "changed to link",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if c := find(t, changes, "run"); c.Before.Mode != 0o644 || c.After.Mode != 0o755 || c.Hunks != "" {
		t.Errorf("mode: %+v", c)
	}
	if c := find(t, changes, "link"); c.Before.Target != "same" || c.After.Target != "text" {
		t.Errorf("link: %+v", c)
	}
	hunk := "@@ -8,7 +8,8 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n+and more\n line 11\n line 12\n line 13\n"
	if c := find(t, changes, "text"); c.Hunks != hunk {
		t.Errorf("text: %q", c.Hunks)
	}
	if same := diff(t, FromDir(before, CreateOptions{}), FromDir(before, CreateOptions{})); len(same) != 0 {
		t.Errorf("a tree differs from itself: %+v", same)
	}
}

func TestDiff_sources(t *testing.T) {
	before, after := two(t)
	file := func(dir string, c Compression) (Source, *Manifest) {
		data, m := snapshot(t, dir, CreateOptions{Compression: c})
		name := filepath.Join(t.TempDir(), "snapshot")
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return FromFile(name, Limits{}), m
	}
	a, am := file(before, Gzip)
	b, bm := file(after, Zstd)
	want := diff(t, FromDir(before, CreateOptions{}), FromDir(after, CreateOptions{}))
	for name, got := range map[string][]Change{"files": diff(t, a, b), "file and folder": diff(t, a, FromDir(after, CreateOptions{}))} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for i := range want {
		want[i].Hunks = ""
	}
	if got := DiffManifests(am, bm); !reflect.DeepEqual(got, want) {
		t.Errorf("indexes: %+v", got)
	}
}

// Git, applying the patch to the first tree, produces the second.
func TestWritePatch(t *testing.T) {
	before, after := two(t)
	var patch bytes.Buffer
	if err := WritePatch(&patch, diff(t, FromDir(before, CreateOptions{}), FromDir(after, CreateOptions{}))); err != nil {
		t.Fatal(err)
	}
	text := patch.String()
	if !strings.Contains(text, "# folder new dir/ added\n") {
		t.Errorf("the patch does not mention the folder:\n%s", text)
	}
	cmd := exec.Command("git", "apply", "-")
	cmd.Dir, cmd.Stdin = before, &patch
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(before))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, text)
	}
	for _, c := range diff(t, FromDir(before, CreateOptions{}), FromDir(after, CreateOptions{})) {
		t.Errorf("still different: %+v", c)
	}
}

func TestDiff_omitted(t *testing.T) {
	big := strings.Repeat("0123456789\n", 100_000) // larger than MaxText
	rows := strings.Repeat("\n", maxLines+2)
	before := tree(t, map[string]string{"nul": "a\x00", "latin": "\xe9t\xe9", "big": big, "rows": rows, "both": "text"})
	after := tree(t, map[string]string{"nul": "b\x00", "latin": "\xe8t\xe9", "big": big + "x", "rows": rows + "\n", "both": "\x00"})
	changes := diff(t, FromDir(before, CreateOptions{}), FromDir(after, CreateOptions{}))
	for name, want := range map[string]string{"nul": "binary", "latin": "binary", "both": "binary", "big": "too large", "rows": "too large"} {
		if c := find(t, changes, name); c.Omitted != want || c.Hunks != "" {
			t.Errorf("%s: %q, %d bytes of hunks", name, c.Omitted, len(c.Hunks))
		}
	}
	var patch bytes.Buffer
	if err := WritePatch(&patch, changes); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(patch.String(), "# a/nul and b/nul differ (binary)\n") {
		t.Errorf("%s", &patch)
	}
}

func TestDiff_maxTexts(t *testing.T) {
	files := map[string]string{}
	for i := range MaxTexts/MaxText + 2 {
		files[fmt.Sprintf("f%02d", i)] = strings.Repeat("x", MaxText-1) + "\n"
	}
	changes := diff(t, FromDir(t.TempDir(), CreateOptions{}), FromDir(tree(t, files), CreateOptions{}))
	shown := 0
	for _, c := range changes {
		if c.Omitted == "" {
			shown++
		} else if c.Omitted != "too large" {
			t.Errorf("%s: %s", c.Path, c.Omitted)
		}
	}
	if shown != MaxTexts/MaxText {
		t.Errorf("got %d files with hunks", shown)
	}
}

// Every second line differs, which is the worst case for a search for common lines.
func TestDiff_slowTexts(t *testing.T) {
	var a, b strings.Builder
	for i := range maxLines {
		fmt.Fprintf(&a, "%d\n", i*7919%maxLines)
		if i%2 == 0 {
			fmt.Fprintf(&b, "%d\n", i*7919%maxLines)
		} else {
			fmt.Fprintf(&b, "x%d\n", i)
		}
	}
	start := time.Now()
	changes := diff(t, FromDir(tree(t, map[string]string{"f": a.String()}), CreateOptions{}), FromDir(tree(t, map[string]string{"f": b.String()}), CreateOptions{}))
	t.Logf("%v, %d bytes of hunks", time.Since(start), len(changes[0].Hunks))
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestDiff_JSON(t *testing.T) {
	before, after := tree(t, map[string]string{"a": "1\n", "b": "x"}), tree(t, map[string]string{"a": "2\n", "c/": ""})
	changes := diff(t, FromDir(before, CreateOptions{}), FromDir(after, CreateOptions{}))
	data, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"path":"a","kind":"changed","before":{"path":"a","type":"file","mode":"0644","size":2,`, `"hunks":"@@ -1 +1 @@\n-1\n+2\n"`, `"kind":"added","before":null`} {
		if !strings.Contains(string(data), part) {
			t.Errorf("%s lacks %s", data, part)
		}
	}
	var back []Change
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, changes) {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestDiff_notFound(t *testing.T) {
	_, err := Diff(t.Context(), FromFile("/nowhere.tar", Limits{}), FromDir(t.TempDir(), CreateOptions{}))
	if !errors.Is(err, fumehood.ErrNotFound) || !strings.Contains(err.Error(), "/nowhere.tar") {
		t.Errorf("%v", err)
	}
	_, err = Diff(t.Context(), FromDir(t.TempDir(), CreateOptions{}), FromDir("/nowhere", CreateOptions{}))
	if !errors.Is(err, fumehood.ErrNotFound) || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v", err)
	}
}
