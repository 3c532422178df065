package conformance

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

// entry is one member of an archive.
type entry struct {
	name    string // ends with "/" for a directory
	mode    int64
	content string
	link    string // the target of a symbolic link
}

var tree = []entry{
	{name: "top/", mode: 0o755},
	{name: "top/file", mode: 0o644, content: "text"},
	{name: "top/empty", mode: 0o600},
	{name: "top/run.sh", mode: 0o755, content: "#!/bin/sh\n"},
	{name: "top/link", link: "sub/deep/file"},
	{name: "top/dangling", link: "/no/such/target"},
	{name: "top/empty dir/", mode: 0o700},
	{name: "top/sub/", mode: 0o755},
	{name: "top/sub/deep/", mode: 0o755},
	{name: "top/sub/deep/file", mode: 0o644, content: strings.Repeat("0123456789", 30_000)},
	{name: "top/ -odd%\nname é", mode: 0o644, content: "odd"},
	{name: "top/" + strings.Repeat("long", 50), mode: 0o644, content: "long"},
}

var archivePromises = []promise{
	{name: "upload and download preserve trees", check: func(t *testing.T, c *Case) {
		if err := c.Sandbox.Upload(t.Context(), c.Dir, bytes.NewReader(tarOf(t, tree))); err != nil {
			t.Fatal(err)
		}
		if got := c.Read(t, "top/link"); got != tree[9].content {
			t.Errorf("through the link: %d bytes", len(got))
		}
		r, err := c.Sandbox.Download(t.Context(), c.Path("top"))
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, r, tree)
		c.wantTimes(t)
	}},
	{name: "programs see uploaded files", check: func(t *testing.T, c *Case) {
		if err := c.Sandbox.Upload(t.Context(), c.Dir, bytes.NewReader(tarOf(t, tree))); err != nil {
			t.Fatal(err)
		}
		c.Run(t, "wait", c.Path("top/sub/deep/file"), probe.Then, "append", c.Path("top/file"), " and more")
		if got := c.Read(t, "top/file"); got != "text and more" {
			t.Errorf("got %q", got)
		}
	}},
	{name: "file download has one entry", check: func(t *testing.T, c *Case) {
		c.Write(t, "sub/one", "just one")
		r, err := c.Sandbox.Download(t.Context(), c.Path("sub/one"))
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, r, []entry{{name: "one", mode: 0o644, content: "just one"}})
	}},
	{name: "upload replaces files and keeps others", check: func(t *testing.T, c *Case) {
		c.Write(t, "top/file", "a long first content")
		c.Write(t, "top/other", "other")
		if err := c.Sandbox.Upload(t.Context(), c.Dir, bytes.NewReader(tarOf(t, tree))); err != nil {
			t.Fatal(err)
		}
		if got := c.Read(t, "top/file") + c.Read(t, "top/other"); got != "textother" {
			t.Errorf("got %q", got)
		}
	}},
	{name: "download may stop early", check: func(t *testing.T, c *Case) {
		c.Run(t, "sparse", c.Path("huge"), "1073741824")
		r, err := c.Sandbox.Download(t.Context(), c.Path("huge"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
			t.Error(err)
		}
		soon(t, "closing the download", func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}},
	{name: "upload cannot leave its directory", check: func(t *testing.T, c *Case) {
		c.Write(t, "in/here", "")
		for name, bad := range map[string][]entry{
			"dots":    {{name: "../escaped", mode: 0o644, content: "x"}},
			"through": {{name: "up", link: ".."}, {name: "up/escaped", mode: 0o644, content: "x"}},
		} {
			err := c.Sandbox.Upload(t.Context(), c.Path("in"), bytes.NewReader(tarOf(t, bad)))
			if c.size(t, c.Path("escaped")) >= 0 {
				t.Errorf("%s: the entry escaped from the directory (error: %v)", name, err)
			}
		}
	}},
	{name: "invalid archive is an error", check: func(t *testing.T, c *Case) {
		err := c.Sandbox.Upload(t.Context(), c.Dir, strings.NewReader(strings.Repeat("not a tar archive", 100)))
		WantError(t, err, fumehood.ErrConfig)
		whole := tarOf(t, tree)
		err = c.Sandbox.Upload(t.Context(), c.Dir, bytes.NewReader(whole[:len(whole)/2]))
		WantError(t, err, fumehood.ErrConfig)
	}},
}

func tarOf(t *testing.T, entries []entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// wantEntries reads the archive to its end, compares its entries with want, and closes it. Only the first entry must be
// in place; the others may come in any order.
func wantEntries(t *testing.T, r io.ReadCloser, want []entry) {
	t.Helper()
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	got := map[string]entry{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		e := entry{name: h.Name, mode: h.Mode & 0o777, content: string(content)}
		switch h.Typeflag {
		case tar.TypeDir:
			e.name = strings.TrimSuffix(e.name, "/") + "/"
		case tar.TypeSymlink:
			e.link, e.mode = h.Linkname, 0
		}
		if len(got) == 0 && e.name != want[0].name {
			t.Errorf("the first entry is %q, want %q", e.name, want[0].name)
		}
		got[e.name] = e
	}
	wanted := map[string]entry{}
	for _, e := range want {
		wanted[e.name] = e
		if got[e.name] != e {
			t.Errorf("%q has mode %o, link %q, content %.100q", e.name, got[e.name].mode, got[e.name].link, got[e.name].content)
		}
	}
	if len(got) != len(wanted) {
		t.Errorf("the entries are %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(wanted)))
	}
}

// wantTimes checks that copies keep the modification times of files and directories.
func (c *Case) wantTimes(t *testing.T) {
	t.Helper()
	old := time.Unix(981173106, 0)
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, head := range []tar.Header{{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "dir/file", Typeflag: tar.TypeReg, Mode: 0o644}} {
		head.ModTime, head.Format = old, tar.FormatPAX
		if err := tw.WriteHeader(&head); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), c.Sandbox.Upload(t.Context(), c.Dir, &b)); err != nil {
		t.Fatal(err)
	}
	if err := c.Sandbox.WriteFile(t.Context(), c.Path("written"), []byte("x"), fumehood.WriteOptions{ModTime: old}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir", "dir/file", "written"} {
		if info, err := c.Sandbox.Stat(t.Context(), c.Path(name)); err != nil || !info.ModTime.Equal(old) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		r, err := c.Sandbox.Download(t.Context(), c.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		if head, err := tar.NewReader(r).Next(); err != nil || !head.ModTime.Equal(old) {
			t.Errorf("the archive of %s: %+v, %v", name, head, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
