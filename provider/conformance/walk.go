package conformance

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var walkPromises = []promise{
	{name: "directory is a valid fs.FS", check: func(t *testing.T, c *Case) {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, h := range []tar.Header{
			{Name: "tree/", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "tree/a/", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "tree/a/b/", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "tree/empty/", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "tree/link", Typeflag: tar.TypeSymlink, Linkname: "a/file"},
			{Name: "tree/way", Typeflag: tar.TypeSymlink, Linkname: "a"},
			{Name: "tree/a/b/deep"},
			{Name: "tree/a/file"},
			{Name: "tree/top"},
		} {
			content := ""
			if h.Typeflag == 0 {
				content, h.Typeflag, h.Mode = "content of "+h.Name, tar.TypeReg, 0o644
				h.Size = int64(len(content))
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(w, content) // it never fails
		}
		if err := errors.Join(w.Close(), c.Sandbox.Upload(t.Context(), c.Dir, &archive)); err != nil {
			t.Fatal(err)
		}
		tree := c.Sandbox.FS(t.Context(), c.Path("tree"))
		if err := fstest.TestFS(tree, "a/b/deep", "a/file", "top", "empty", "link", "way"); err != nil {
			t.Error(err)
		}
		if got, err := fs.ReadFile(tree, "way/b/deep"); err != nil || string(got) != "content of tree/a/b/deep" {
			t.Errorf("through a link: %q, %v", got, err)
		}
		if info, err := fs.Stat(tree, "way"); err != nil || !info.IsDir() || info.Name() != "way" {
			t.Errorf("the link's target: %+v, %v", info, err)
		}
		if info, err := fs.Stat(tree, "link"); err != nil || !info.Mode().IsRegular() || info.Size() != int64(len("content of tree/a/file")) {
			t.Errorf("the link's target: %+v, %v", info, err)
		}
		for name, want := range map[string]error{"missing": fs.ErrNotExist, "../x": fs.ErrInvalid, "/x": fs.ErrInvalid} {
			var at *fs.PathError
			if _, err := tree.Open(name); !errors.Is(err, want) || !errors.As(err, &at) || at.Path != name {
				t.Errorf("%s: got %v", name, err)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := fs.ReadFile(c.Sandbox.FS(over, c.Dir), "tree/top"); !errors.Is(err, context.Canceled) {
			t.Errorf("with a canceled context: %v", err)
		}
	}},
	{name: "list returns any entry, sorted by name", check: func(t *testing.T, c *Case) {
		odd := []string{" space", "-rf", ".hidden", "a\nb", "back\\slash", "é", "\xff\xfe", `"quoted"`, strings.Repeat("n", 240)}
		for _, name := range odd {
			c.Write(t, "dir/"+name, name)
		}
		c.mkdir(t, "dir/sub")
		c.Write(t, "dir/sub/below", "not listed")
		c.Run(t, "link", "sub", c.Path("dir/link"), probe.Then, "fifo", c.Path("dir/fifo"), probe.Then, "link", "dir", c.Path("to-dir"))
		c.wantNames(t, "dir", sortNames(append(odd, "sub", "link", "fifo")...)...)
		c.wantNames(t, "to-dir", sortNames(append(odd, "sub", "link", "fifo")...)...)
		list, err := c.Sandbox.List(t.Context(), c.Path("dir"))
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range list { // List and Stat must agree
			if stat, err := c.Sandbox.Stat(t.Context(), c.Path("dir/"+info.Name)); err != nil || !sameFile(stat, info) {
				t.Errorf("%q: List returned %+v, and Stat %+v, %v", info.Name, info, stat, err)
			}
		}
		c.mkdir(t, "empty")
		c.wantNames(t, "empty")
	}},
	{name: "list of a non-directory is an error", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "x")
		c.Run(t, "link", "loop", c.Path("loop"), probe.Then, "link", "none", c.Path("dangling"))
		for name, class := range map[string]error{
			"file": fumehood.ErrNotDirectory, "file/below": fumehood.ErrNotDirectory, "none": fumehood.ErrNotFound,
			"loop": fumehood.ErrNotFound, "dangling": fumehood.ErrNotFound,
		} {
			_, err := c.Sandbox.List(t.Context(), c.Path(name))
			wantFileError(t, err, c.Path(name), class)
		}
	}},
	{name: "2,000 files can be listed and removed", check: func(t *testing.T, c *Case) {
		const many = 2_000 // more than fit in one message
		entries := make([]entry, many)
		for i := range entries {
			entries[i] = entry{name: fmt.Sprintf("many/%04d", i), mode: 0o644}
		}
		if err := c.Sandbox.Upload(t.Context(), c.Dir, bytes.NewReader(tarOf(t, entries))); err != nil {
			t.Fatal(err)
		}
		names := c.names(t, "many")
		if len(names) != many || names[0] != "0000" || names[many-1] != "1999" {
			t.Errorf("got %d names, from %q to %q", len(names), names[0], names[len(names)-1])
		}
		if err := c.remove(t, "many", true); err != nil {
			t.Error(err)
		}
	}},
	{name: "walk is complete, ordered and follows no link", check: func(t *testing.T, c *Case) {
		c.Write(t, "tree/b/file", "123")
		c.Write(t, "tree/b-file", "x")
		c.Write(t, "tree/a/\xff\n", "x")
		c.Write(t, "outside/file", "x")
		c.mkdir(t, "tree/empty")
		c.Run(t, "link", "../../outside", c.Path("tree/a/out"), probe.Then, "link", "..", c.Path("tree/b/up"), probe.Then,
			"link", "loop", c.Path("tree/loop"), probe.Then, "fifo", c.Path("tree/fifo"))
		sock := c.Probe("socket", "sock") // a short path, because the length of a socket's address is limited
		sock.Dir = c.Path("tree")
		c.Succeed(t, sock)
		want := []string{
			".", "a", "a/out", "a/\xff\n", "b", "b/file", "b/up", "b-file", "empty", "fifo", "loop", "sock",
		}
		var got []string
		for e, err := range c.Sandbox.Walk(t.Context(), c.Path("tree")) {
			if err != nil {
				t.Errorf("%q: %v", e.Path, err)
				continue
			}
			got = append(got, e.Path)
			stat, err := c.Sandbox.Stat(t.Context(), c.Path("tree/"+e.Path))
			if stat.Name = e.Name; err != nil || e.Path != "." && !sameFile(stat, e.FileInfo) {
				t.Errorf("%q: Walk yielded %+v, and Stat %+v, %v", e.Path, e.FileInfo, stat, err)
			}
			if e.Path == "." && e.Name != "tree" || e.Path != "." && e.Name != e.Path[strings.LastIndex(e.Path, "/")+1:] {
				t.Errorf("%q has the name %q", e.Path, e.Name)
			}
		}
		if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
			t.Errorf("Walk yielded %q\nwant %q", got, want)
		}
	}},
	{name: "walk of a file or link yields only that", check: func(t *testing.T, c *Case) {
		c.Write(t, "dir/file", "123")
		c.Run(t, "link", "dir", c.Path("link"))
		for name, size := range map[string]int64{"dir/file": 3, "link": 0} {
			n := 0
			for e, err := range c.Sandbox.Walk(t.Context(), c.Path(name)) {
				if n++; err != nil || e.Path != "." || e.Size != size || (name == "link") != (e.LinkTarget == "dir") {
					t.Errorf("%s: Walk yielded %+v, %v", name, e, err)
				}
			}
			if n != 1 {
				t.Errorf("%s: Walk yielded %d files, want 1", name, n)
			}
		}
	}},
	{name: "walk of a missing path is one error", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "x")
		for name, class := range map[string]error{"none": fumehood.ErrNotFound, "file/below": fumehood.ErrNotDirectory} {
			n := 0
			for e, err := range c.Sandbox.Walk(t.Context(), c.Path(name)) {
				if n++; e.Path != "" {
					t.Errorf("%s: Walk yielded %+v", name, e)
				}
				wantFileError(t, err, c.Path(name), class)
			}
			if n != 1 {
				t.Errorf("%s: Walk yielded %d errors, want 1", name, n)
			}
		}
	}},
	{name: "walk may stop at any time", check: func(t *testing.T, c *Case) {
		var entries []entry
		for i := range 3000 {
			entries = append(entries, entry{name: fmt.Sprintf("tree/%d/%d", i%100, i), mode: 0o644})
		}
		if err := c.Sandbox.Upload(t.Context(), c.Dir, bytes.NewReader(tarOf(t, entries))); err != nil {
			t.Fatal(err)
		}
		for stop := range 3 {
			soon(t, "leaving a walk", func() {
				n := 0
				for _, err := range c.Sandbox.Walk(t.Context(), c.Path("tree")) {
					if err != nil {
						t.Error(err)
					}
					if n++; n > stop*1000 {
						break
					}
				}
			})
		}
		if got := c.Run(t, "print", "still there"); got != "still there" {
			t.Errorf("got %q", got)
		}
	}},
}

// sameFile reports whether two descriptions of a file are equal.
func sameFile(a, b fumehood.FileInfo) bool {
	return a.Name == b.Name && a.Size == b.Size && a.Mode == b.Mode && a.LinkTarget == b.LinkTarget && a.UID == b.UID && a.GID == b.GID &&
		a.ModTime.Equal(b.ModTime)
}

// sortNames sorts names byte by byte, in place, and returns them.
func sortNames(names ...string) []string {
	slices.Sort(names)
	return names
}
