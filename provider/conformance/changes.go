package conformance

import (
	"bytes"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var changePromises = []promise{
	{name: "mkdir sets the mode", check: func(t *testing.T, c *Case) {
		for name, mode := range map[string]fs.FileMode{"plain": 0, "private": 0o700, "open": 0o777, "shut": 0, "sticky": fs.ModeSticky | 0o777} {
			opts := fumehood.MkdirOptions{Mode: mode}
			if err := c.Sandbox.Mkdir(t.Context(), c.Path(name), opts); err != nil {
				t.Fatal(err)
			}
			if mode == 0 {
				mode = 0o755
			}
			c.wantMode(t, name, fs.ModeDir|mode)
		}
		p := c.Path("plain")
		wantFileError(t, c.Sandbox.Mkdir(t.Context(), p, fumehood.MkdirOptions{}), p, fumehood.ErrExists)
		c.Write(t, "file", "")
		p = c.Path("file")
		wantFileError(t, c.Sandbox.Mkdir(t.Context(), p, fumehood.MkdirOptions{}), p, fumehood.ErrExists)
		p = c.Path("none/below")
		wantFileError(t, c.Sandbox.Mkdir(t.Context(), p, fumehood.MkdirOptions{}), p, fumehood.ErrNotFound)
		p = c.Path("file/below")
		wantFileError(t, c.Sandbox.Mkdir(t.Context(), p, fumehood.MkdirOptions{}), p, fumehood.ErrNotDirectory)
		p = c.Path(strings.Repeat("n", 300))
		wantFileError(t, c.Sandbox.Mkdir(t.Context(), p, fumehood.MkdirOptions{}), p, fumehood.ErrLimit)
		p = c.Path("x")
		wantFileError(t, c.Sandbox.Mkdir(t.Context(), p, fumehood.MkdirOptions{Mode: fs.ModeDir | 0o755}), p, fumehood.ErrConfig)
		for owner, class := range badOwners(c) { // for one it makes nothing
			p := c.Path("owned")
			wantFileError(t, c.Sandbox.Mkdir(t.Context(), p, fumehood.MkdirOptions{Owner: owner}), p, class)
			_, err := c.Sandbox.Stat(t.Context(), p)
			wantFileError(t, err, p, fumehood.ErrNotFound)
		}
	}},
	{name: "mkdir creates parents, keeps what exists", check: func(t *testing.T, c *Case) {
		opts := fumehood.MkdirOptions{Mode: 0o700, Parents: true}
		if err := c.Sandbox.Mkdir(t.Context(), c.Path("a/b/c"), opts); err != nil {
			t.Fatal(err)
		}
		c.wantMode(t, "a", fs.ModeDir|0o755)
		c.wantMode(t, "a/b/c", fs.ModeDir|0o700)
		c.Write(t, "a/b/c/file", "x")
		opts.Mode = 0o755
		if err := c.Sandbox.Mkdir(t.Context(), c.Path("a/b/c"), opts); err != nil {
			t.Error(err)
		}
		c.wantMode(t, "a/b/c", fs.ModeDir|0o700)
		for _, name := range []string{"a/b/c/file", "a/b/c/file/below"} {
			wantFileError(t, c.Sandbox.Mkdir(t.Context(), c.Path(name), opts), c.Path(name), fumehood.ErrNotDirectory)
		}
	}},
	{name: "remove deletes only files, links, empty dirs", check: func(t *testing.T, c *Case) {
		c.Write(t, "full/file", "x")
		c.Run(t, "link", "full", c.Path("link"), probe.Then, "fifo", c.Path("fifo"))
		c.mkdir(t, "empty")
		full := c.Path("full")
		wantFileError(t, c.remove(t, "full", false), full, fumehood.ErrNotEmpty)
		wantFileError(t, c.remove(t, "none", false), c.Path("none"), fumehood.ErrNotFound)
		wantFileError(t, c.remove(t, "none", true), c.Path("none"), fumehood.ErrNotFound)
		wantFileError(t, c.remove(t, "full/file/below", true), c.Path("full/file/below"), fumehood.ErrNotDirectory)
		for _, name := range []string{"link", "fifo", "empty", "full/file", "full"} {
			if err := c.remove(t, name, false); err != nil {
				t.Error(err)
			}
			_, err := c.Sandbox.Stat(t.Context(), c.Path(name))
			wantFileError(t, err, c.Path(name), fumehood.ErrNotFound)
			if name == "link" && c.Read(t, "full/file") != "x" {
				t.Error("the target of the link has changed")
			}
		}
	}},
	{name: "remove deletes trees but no link targets", check: func(t *testing.T, c *Case) {
		c.Write(t, "outside/file", "kept")
		c.Write(t, "tree/a/b/c", "x")
		c.Write(t, "tree/-rf", "x")
		c.Write(t, "tree/\xff\nodd", "x")
		c.Run(t, "link", c.Path("outside"), c.Path("tree/out"), probe.Then, "link", "../outside/file", c.Path("tree/file"), probe.Then,
			"link", "..", c.Path("tree/a/up"), probe.Then, "link", "loop", c.Path("tree/loop"), probe.Then, "fifo", c.Path("tree/a/fifo"))
		c.Run(t, "link", "outside", c.Path("way in"))
		if err := c.remove(t, "tree", true); err != nil {
			t.Fatal(err)
		}
		if err := c.remove(t, "way in", true); err != nil { // a link, not a tree
			t.Fatal(err)
		}
		if got := c.Read(t, "outside/file"); got != "kept" {
			t.Errorf("the file outside holds %q", got)
		}
		c.wantNames(t, ".", "here", "outside")
	}},
	{name: "rename moves files, directories and links", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "content")
		c.Write(t, "dir/below", "deep")
		c.Run(t, "link", "no such target", c.Path("link"))
		c.Write(t, "old", "old")
		for from, to := range map[string]string{"file": "old", "dir": "moved\nhere", "link": "dir"} {
			if from == "link" {
				continue // renamed below, once its new name is free
			}
			c.rename(t, from, to)
		}
		c.rename(t, "link", "dir")
		if got := c.Read(t, "old") + c.Read(t, "moved\nhere/below"); got != "contentdeep" {
			t.Errorf("got %q", got)
		}
		if info, err := c.Sandbox.Stat(t.Context(), c.Path("dir")); err != nil || info.LinkTarget != "no such target" {
			t.Errorf("the link became %+v, %v", info, err)
		}
		c.wantNames(t, ".", "dir", "here", "moved\nhere", "old")
	}},
	{name: "rename errors state the cause", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "x")
		c.Write(t, "full/file", "x")
		c.mkdir(t, "dir")
		c.mkdir(t, "empty")
		for _, r := range []struct {
			from, to string
			class    error
		}{
			{"none", "new", fumehood.ErrNotFound},
			{"file", "none/new", fumehood.ErrNotFound},
			{"file", "dir", fumehood.ErrIsDirectory},
			{"dir", "file", fumehood.ErrNotDirectory},
			{"file/below", "new", fumehood.ErrNotDirectory},
			{"dir", "full", fumehood.ErrNotEmpty},
			{"full", "full/below", fumehood.ErrConfig},
		} {
			err := c.Sandbox.Rename(t.Context(), c.Path(r.from), c.Path(r.to))
			wantFileError(t, err, c.Path(r.from), r.class)
			if err != nil && !strings.Contains(err.Error(), c.Path(r.to)) {
				t.Errorf("the new path is not in %q", err)
			}
		}
		c.rename(t, "full", "empty") // replaces the empty directory
		c.wantNames(t, ".", "dir", "empty", "file", "here")
	}},
	{name: "symlink keeps the target exactly", check: func(t *testing.T, c *Case) {
		for name, target := range map[string]string{
			"relative": "a/../b", "absolute": c.Path("file"), "dangling": "/no/such", "odd": "-\xff\n ", "itself": "itself",
		} {
			if err := c.Sandbox.Symlink(t.Context(), target, c.Path(name)); err != nil {
				t.Fatal(err)
			}
			info, err := c.Sandbox.Stat(t.Context(), c.Path(name))
			if err != nil || info.LinkTarget != target || info.Mode.Type() != fs.ModeSymlink {
				t.Errorf("%s: Stat returned %+v, %v", name, info, err)
			}
			wantFileError(t, c.Sandbox.Symlink(t.Context(), "x", c.Path(name)), c.Path(name), fumehood.ErrExists)
		}
		c.Write(t, "file", "x")
		if got := c.Read(t, "absolute"); got != "x" {
			t.Errorf("through the link: %q", got)
		}
		p := c.Path("bad")
		wantFileError(t, c.Sandbox.Symlink(t.Context(), "a\x00b", p), p, fumehood.ErrConfig)
		p = c.Path("none/link")
		wantFileError(t, c.Sandbox.Symlink(t.Context(), "x", p), p, fumehood.ErrNotFound)
	}},
	{name: "chmod sets modes, also through links", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "x")
		c.mkdir(t, "dir")
		c.Run(t, "link", "file", c.Path("link"))
		for _, s := range []struct {
			name, target string
			mode         fs.FileMode
		}{
			{"file", "file", 0o600},
			{"link", "file", 0o751},
			{"file", "file", fs.ModeSetuid | 0o755},
			{"dir", "dir", 0o700},
			{"dir", "dir", fs.ModeSticky | 0o777},
			{"file", "file", 0},
		} {
			if err := c.Sandbox.Chmod(t.Context(), c.Path(s.name), s.mode); err != nil {
				t.Error(err)
			}
			want := s.mode
			if s.target == "dir" {
				want |= fs.ModeDir
			}
			c.wantMode(t, s.target, want)
		}
		wantFileError(t, c.Sandbox.Chmod(t.Context(), c.Path("none"), 0o600), c.Path("none"), fumehood.ErrNotFound)
		wantFileError(t, c.Sandbox.Chmod(t.Context(), c.Path("file"), fs.ModeDir), c.Path("file"), fumehood.ErrConfig)
	}},
	{name: "atomic write leaves no partial file", check: func(t *testing.T, c *Case) {
		long, short := bytes.Repeat([]byte("a"), 300_000), bytes.Repeat([]byte("b"), 200_000)
		write := func(data []byte) {
			t.Helper()
			if err := c.Sandbox.WriteFile(t.Context(), c.Path("dir/file"), data, fumehood.WriteOptions{Mode: 0o640, Atomic: true}); err != nil {
				t.Fatal(err)
			}
		}
		write(long)
		var reads atomic.Int64
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for ; ; reads.Add(1) {
				got, err := c.Sandbox.ReadFile(t.Context(), c.Path("dir/file"), fumehood.ReadOptions{})
				if err != nil || !bytes.Equal(got, long) && !bytes.Equal(got, short) {
					t.Errorf("a reader got %d bytes, %v", len(got), err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		begin := time.Now()
		for i := 0; i < 10 || i < 50 && time.Since(begin) < 3*time.Second || reads.Load() == 0 && time.Since(begin) < time.Minute; i++ {
			write(short)
			write(long)
		}
		close(stop)
		if <-stopped; reads.Load() == 0 {
			t.Error("the file was never read while it was written")
		}
		c.wantMode(t, "dir/file", 0o640)
		err := c.Sandbox.WriteFrom(t.Context(), c.Path("dir/file"), strings.NewReader("abc"), 10, fumehood.WriteOptions{Atomic: true})
		WantError(t, err, fumehood.ErrConfig)
		Eventually(t, "the partial file is removed", func() bool { return len(c.names(t, "dir")) == 1 })
		if got := c.Read(t, "dir/file"); got != string(long) {
			t.Errorf("after a failed write, the file has %d bytes", len(got))
		}
	}},
	{name: "atomic write replaces a link's target", check: func(t *testing.T, c *Case) {
		atomic := fumehood.WriteOptions{Atomic: true}
		c.Write(t, "real/target", "old")
		c.Run(t, "link", "real/target", c.Path("link"), probe.Then, "link", "link", c.Path("second"), probe.Then,
			"link", "real/new", c.Path("dangling"), probe.Then, "link", "loop", c.Path("loop"), probe.Then, "fifo", c.Path("fifo"))
		for name, target := range map[string]string{"second": "real/target", "dangling": "real/new"} {
			if err := c.Sandbox.WriteFile(t.Context(), c.Path(name), []byte(name), atomic); err != nil {
				t.Fatal(err)
			}
			if got := c.Read(t, target); got != name {
				t.Errorf("%s holds %q", target, got)
			}
			if info, err := c.Sandbox.Stat(t.Context(), c.Path(name)); err != nil || info.Mode.Type() != fs.ModeSymlink {
				t.Errorf("the link became %+v, %v", info, err)
			}
		}
		for p, class := range map[string]error{
			c.Path("loop"): fumehood.ErrNotFound, c.Path("real"): fumehood.ErrIsDirectory, c.Path("fifo"): fumehood.ErrNotRegular,
			c.Path("real/target/below"): fumehood.ErrNotDirectory,
		} {
			wantFileError(t, c.Sandbox.WriteFile(t.Context(), p, nil, atomic), p, class)
		}
	}},
}

func (c *Case) wantMode(t *testing.T, name string, want fs.FileMode) {
	t.Helper()
	if info, err := c.Sandbox.Stat(t.Context(), c.Path(name)); err != nil || info.Mode != want {
		t.Errorf("%s: Stat returned mode %v, error %v, want mode %v", name, info.Mode, err, want)
	}
}

func (c *Case) mkdir(t *testing.T, name string) {
	t.Helper()
	if err := c.Sandbox.Mkdir(t.Context(), c.Path(name), fumehood.MkdirOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *Case) remove(t *testing.T, name string, recursive bool) error {
	t.Helper()
	return c.Sandbox.Remove(t.Context(), c.Path(name), fumehood.RemoveOptions{Recursive: recursive})
}

func (c *Case) rename(t *testing.T, from, to string) {
	t.Helper()
	if err := c.Sandbox.Rename(t.Context(), c.Path(from), c.Path(to)); err != nil {
		t.Fatal(err)
	}
}

// names returns the names in a directory of the promise's directory.
func (c *Case) names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := c.Sandbox.List(t.Context(), path.Join(c.Dir, dir))
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(list))
	for i, info := range list {
		names[i] = info.Name
	}
	return names
}

func (c *Case) wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := c.names(t, dir); strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		t.Errorf("%s contains %.1000q, want %.1000q", dir, got, want)
	}
}
