package conformance

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var filePromises = []promise{
	{name: "content is exact", check: func(t *testing.T, c *Case) {
		everyByte := make([]byte, 256)
		for i := range everyByte {
			everyByte[i] = byte(i)
		}
		for name, data := range map[string][]byte{
			"empty": {}, "one": {0}, "bytes": everyByte, "text": []byte("é\r\n\n$HOME"), "odd": probe.Pattern(3, 65_537),
			"pieces": probe.Pattern(4, 3<<20-1),
		} {
			if err := c.Sandbox.WriteFile(t.Context(), c.Path(name), data, fumehood.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := c.Read(t, name); got != string(data) {
				t.Errorf("%s: read back %d bytes, want %d", name, len(got), len(data))
			}
		}
	}},
	{name: "50 MiB can be written and read", check: func(t *testing.T, c *Case) {
		data := bigPattern()
		if err := c.Sandbox.WriteFrom(t.Context(), c.Path("big"), bytes.NewReader(data), big, fumehood.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		info, err := c.Sandbox.Stat(t.Context(), c.Path("big"))
		if err != nil || info.Size != big {
			t.Errorf("Stat returned %+v, %v", info, err)
		}
		got, err := c.Sandbox.ReadFile(t.Context(), c.Path("big"), fumehood.ReadOptions{})
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("read back %d bytes, %v", len(got), err)
		}
	}},
	{name: "commands and the host share files", check: func(t *testing.T, c *Case) {
		c.Write(t, "by-host", "x")
		c.Run(t, "wait", c.Path("by-host"), probe.Then, "append", c.Path("by-command"), "from a command")
		if got := c.Read(t, "by-command"); got != "from a command" {
			t.Errorf("got %q", got)
		}
		c.Run(t, "append", c.Path("by-host"), "y") // the command's user may write to it
		if got := c.Read(t, "by-host"); got != "xy" {
			t.Errorf("got %q", got)
		}
	}},
	{name: "write replaces the whole file", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "a long first content")
		c.Write(t, "file", "short")
		if got := c.Read(t, "file"); got != "short" {
			t.Errorf("got %q", got)
		}
	}},
	{name: "any file name works", check: func(t *testing.T, c *Case) {
		for _, name := range []string{
			"with space", "new\nline", "-rf", "--help", "100%s%n", "é☃\U0001F600", "'quote\"", "$HOME", "back\\slash",
			".hidden", "a:b", "*", "tab\t", strings.Repeat("n", 240), "-dir/-file", "..more",
		} {
			c.Write(t, name, name)
			if got := c.Read(t, name); got != name {
				t.Errorf("%q holds %q", name, got)
			}
			info, err := c.Sandbox.Stat(t.Context(), c.Path(name))
			if err != nil || info.Name != name[strings.LastIndex(name, "/")+1:] || info.Size != int64(len(name)) {
				t.Errorf("%q: Stat returned %+v, %v", name, info, err)
			}
		}
	}},
	{name: "missing parents are created", check: func(t *testing.T, c *Case) {
		c.Write(t, "a/b/c/d/file", "deep")
		if got := c.Read(t, "a/b/c/d/file"); got != "deep" {
			t.Errorf("got %q", got)
		}
		info, err := c.Sandbox.Stat(t.Context(), c.Path("a/b"))
		if err != nil || !info.Mode.IsDir() {
			t.Errorf("Stat returned %+v, %v", info, err)
		}
	}},
	{name: "mode is exact and executables run", check: func(t *testing.T, c *Case) {
		for mode, want := range map[fs.FileMode]fs.FileMode{0: 0o644, 0o600: 0o600, 0o777: 0o777, 0o444: 0o444} {
			name := "mode" + want.String()
			if err := c.Sandbox.WriteFile(t.Context(), c.Path(name), nil, fumehood.WriteOptions{Mode: mode}); err != nil {
				t.Fatal(err)
			}
			info, err := c.Sandbox.Stat(t.Context(), c.Path(name))
			if err != nil || info.Mode != want {
				t.Errorf("mode %o: Stat returned %v, %v", mode, info.Mode, err)
			}
		}
		program, err := c.Sandbox.ReadFile(t.Context(), c.Harness.Probe, fumehood.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Sandbox.WriteFile(t.Context(), c.Path("program"), program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		cmd := c.Probe("print", "a copy")
		cmd.Args[0] = "./program"
		wantOutput(t, "stdout", c.Succeed(t, cmd).Stdout, "a copy")
	}},
	{name: "relative paths use the service's directory", check: func(t *testing.T, c *Case) {
		rel := c.Name + "/relative"
		if err := c.Sandbox.WriteFile(t.Context(), rel, []byte("x"), fumehood.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := c.Read(t, "relative"); got != "x" {
			t.Errorf("got %q", got)
		}
		if got, err := c.Sandbox.ReadFile(t.Context(), rel, fumehood.ReadOptions{}); err != nil || string(got) != "x" {
			t.Errorf("got %q, %v", got, err)
		}
	}},
	{name: "32 files can be used in parallel", alone: true, check: func(t *testing.T, c *Case) {
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				name := c.Path("dir/file" + string(rune('A'+i)))
				data := probe.Pattern(int64(i), 200_000)
				if err := c.Sandbox.WriteFile(t.Context(), name, data, fumehood.WriteOptions{}); err != nil {
					t.Error(err)
					return
				}
				got, err := c.Sandbox.ReadFile(t.Context(), name, fumehood.ReadOptions{})
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: read back %d bytes, %v", name, len(got), err)
				}
			})
		}
		wg.Wait()
	}},
	{name: "range read is exact and stops at the end", check: func(t *testing.T, c *Case) {
		data := probe.Pattern(7, 200_000)
		c.Write(t, "file", string(data))
		for _, r := range []struct{ offset, length, want int64 }{
			{0, 0, 0},
			{0, 1, 1},
			{0, 200_000, 200_000},
			{100_001, 65_537, 65_537},
			{199_999, 10, 1},
			{200_000, 10, 0},
			{1 << 40, 10, 0},
			{0, fumehood.MaxReadFile, 200_000},
		} {
			got, err := c.Sandbox.ReadRange(t.Context(), c.Path("file"), r.offset, r.length)
			from := min(r.offset, int64(len(data)))
			if err != nil || !bytes.Equal(got, data[from:from+r.want]) {
				t.Errorf("%d bytes from %d: got %d, %v", r.length, r.offset, len(got), err)
			}
		}
		for _, r := range []struct {
			offset, length int64
			class          error
		}{{-1, 1, fumehood.ErrConfig}, {0, -1, fumehood.ErrConfig}, {0, fumehood.MaxReadFile + 1, fumehood.ErrTooLarge}} {
			_, err := c.Sandbox.ReadRange(t.Context(), c.Path("file"), r.offset, r.length)
			wantFileError(t, err, c.Path("file"), r.class)
		}
		_, err := c.Sandbox.ReadRange(t.Context(), c.Dir, 0, 0)
		wantFileError(t, err, c.Dir, fumehood.ErrIsDirectory)
	}},
	{name: "stream reads any size and may stop early", check: func(t *testing.T, c *Case) {
		c.Write(t, "small", "content")
		c.Run(t, "sparse", c.Path("huge"), "1073741824")
		r, info, err := c.Sandbox.Open(t.Context(), c.Path("small"))
		if err != nil || info.Size != 7 || info.Name != "small" {
			t.Fatalf("Open returned %+v, %v", info, err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "content" {
			t.Errorf("got %q, %v", got, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if r, info, err = c.Sandbox.Open(t.Context(), c.Path("huge")); err != nil || info.Size != 1<<30 {
			t.Fatalf("Open returned %+v, %v", info, err)
		}
		if _, err := io.ReadFull(r, make([]byte, 100_000)); err != nil {
			t.Error(err)
		}
		soon(t, "closing the file", func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}},
	{name: "read limit is enforced", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "content")
		for _, limit := range []int64{0, 7, 8, math.MaxInt64} {
			if got, err := c.Sandbox.ReadFile(t.Context(), c.Path("file"), fumehood.ReadOptions{Limit: limit}); err != nil || string(got) != "content" {
				t.Errorf("with a limit of %d: %q, %v", limit, got, err)
			}
		}
		for limit, class := range map[int64]error{6: fumehood.ErrTooLarge, 1: fumehood.ErrTooLarge, -1: fumehood.ErrConfig} {
			_, err := c.Sandbox.ReadFile(t.Context(), c.Path("file"), fumehood.ReadOptions{Limit: limit})
			wantFileError(t, err, c.Path("file"), class)
		}
	}},
	{name: "short reader is an error", check: func(t *testing.T, c *Case) {
		err := c.Sandbox.WriteFrom(t.Context(), c.Path("short"), strings.NewReader("abc"), 10, fumehood.WriteOptions{})
		WantError(t, err, fumehood.ErrConfig)
		c.Write(t, "there", "whole")
		err = c.Sandbox.WriteFrom(t.Context(), c.Path("there"), strings.NewReader("abc"), -1, fumehood.WriteOptions{})
		WantError(t, err, fumehood.ErrConfig)
		if got := c.Read(t, "there"); got != "whole" {
			t.Errorf("after a refused write, the file holds %q", got)
		}
	}},
}

var fileErrorPromises = []promise{
	{name: "missing path is ErrNotFound", check: func(t *testing.T, c *Case) {
		for _, p := range []string{c.Path("none"), c.Path("none/below"), c.Name + "/none"} {
			_, err := c.Sandbox.ReadFile(t.Context(), p, fumehood.ReadOptions{})
			wantFileError(t, err, p, fumehood.ErrNotFound)
			_, err = c.Sandbox.Stat(t.Context(), p)
			wantFileError(t, err, p, fumehood.ErrNotFound)
			_, err = c.Sandbox.Download(t.Context(), p)
			wantFileError(t, err, p, fumehood.ErrNotFound)
			wantFileError(t, c.Sandbox.Upload(t.Context(), p, strings.NewReader("")), p, fumehood.ErrNotFound)
		}
	}},
	{name: "directory as a file is ErrIsDirectory", check: func(t *testing.T, c *Case) {
		_, err := c.Sandbox.ReadFile(t.Context(), c.Dir, fumehood.ReadOptions{})
		wantFileError(t, err, c.Dir, fumehood.ErrIsDirectory)
		err = c.Sandbox.WriteFile(t.Context(), c.Dir, []byte("x"), fumehood.WriteOptions{})
		wantFileError(t, err, c.Dir, fumehood.ErrIsDirectory)
	}},
	{name: "file as a directory is ErrNotDirectory", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "x")
		below, file := c.Path("file/below"), c.Path("file")
		_, err := c.Sandbox.ReadFile(t.Context(), below, fumehood.ReadOptions{})
		wantFileError(t, err, below, fumehood.ErrNotDirectory)
		err = c.Sandbox.WriteFile(t.Context(), below, []byte("x"), fumehood.WriteOptions{})
		wantFileError(t, err, below, fumehood.ErrNotDirectory)
		_, err = c.Sandbox.Stat(t.Context(), below)
		wantFileError(t, err, below, fumehood.ErrNotDirectory)
		wantFileError(t, c.Sandbox.Upload(t.Context(), file, bytes.NewReader(tarOf(t, nil))), file, fumehood.ErrNotDirectory)
	}},
	{name: "file over 100 MiB is ErrTooLarge", check: func(t *testing.T, c *Case) {
		c.Run(t, "sparse", c.Path("huge"), "104857601")
		_, err := c.Sandbox.ReadFile(t.Context(), c.Path("huge"), fumehood.ReadOptions{})
		wantFileError(t, err, c.Path("huge"), fumehood.ErrTooLarge, fumehood.ErrLimit)
	}},
	{name: "forbidden file is ErrPermission", check: func(t *testing.T, c *Case) {
		c.Write(t, "secret", "x")
		c.Write(t, "locked/file", "x")
		c.Run(t, "lock", c.Path("secret"), probe.Then, "lock", c.Path("locked"))
		for _, p := range []string{c.Path("secret"), c.Path("locked/file")} {
			_, err := c.Sandbox.ReadFile(t.Context(), p, fumehood.ReadOptions{})
			wantFileError(t, err, p, fumehood.ErrPermission)
			err = c.Sandbox.WriteFile(t.Context(), p, []byte("y"), fumehood.WriteOptions{})
			wantFileError(t, err, p, fumehood.ErrPermission)
		}
	}},
	{name: "pipes and sockets are never opened", check: func(t *testing.T, c *Case) {
		// The socket's path is relative because the length of a socket's address is limited.
		c.Run(t, "fifo", c.Path("fifo"), probe.Then, "socket", "socket")
		neverOpened(t, c, c.Path("fifo"), fumehood.ErrNotRegular)
		neverOpened(t, c, c.Path("socket"), fumehood.ErrNotRegular)
	}},
	{name: "devices are never opened", check: func(t *testing.T, c *Case) {
		neverOpened(t, c, "/dev/null", fumehood.ErrNotRegular)
	}},
	{name: "download skips pipes, sockets and devices", check: func(t *testing.T, c *Case) {
		c.Write(t, "tree/file", "x")
		c.Write(t, "tree/sub/last", "y")
		// The paths are relative because the length of a socket's address is limited.
		c.Run(t, "fifo", c.Path("tree/fifo"), probe.Then, "socket", "tree/socket", probe.Then, "fifo", c.Path("tree/sub/a\n b"))
		special := []string{"pipe fifo", "pipe sub/a\n b", "socket socket"}
		if c.Exec(t, c.Probe("device", c.Path("tree/device"))).ExitCode == 0 { // otherwise nothing in the sandbox can make one
			special = append(special, "device device")
		}
		soon(t, "the download", func() {
			r, err := c.Sandbox.Download(t.Context(), c.Path("tree"))
			if err != nil {
				t.Error(err)
				return
			}
			wantSkipped(t, r, special)
		})
		soon(t, "the download of a pipe", func() {
			r, err := c.Sandbox.Download(t.Context(), c.Path("tree/fifo"))
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				r.Close()
			}
			wantFileError(t, err, c.Path("tree/fifo"), fumehood.ErrNotRegular)
		})
	}},
	{name: "overlong name fails only its own call", check: func(t *testing.T, c *Case) {
		for _, name := range []string{strings.Repeat("n", 100<<10), strings.Repeat("n", 200<<10), strings.Repeat("<", 50<<10)} {
			_, err := c.Sandbox.Stat(t.Context(), "/"+name)
			wantFileError(t, err, "/"+name, fumehood.ErrLimit)
			for _, cmd := range []fumehood.Cmd{{Args: []string{name}}, {Args: []string{"/" + name}}, {Args: c.Probe("pwd").Args, Dir: "/" + name}} {
				if res, err := c.Sandbox.Exec(t.Context(), cmd); !errors.Is(err, fumehood.ErrNotStarted) {
					t.Errorf("got %+v, %.1000v", res, err)
				}
			}
			if got := c.Run(t, "print", "alive"); got != "alive" {
				t.Errorf("got %q", got)
			}
		}
	}},
	{name: "invalid path is ErrConfig", check: func(t *testing.T, c *Case) {
		for _, p := range []string{"", "a\x00b"} {
			_, err := c.Sandbox.ReadFile(t.Context(), p, fumehood.ReadOptions{})
			wantFileError(t, err, p, fumehood.ErrConfig)
			wantFileError(t, c.Sandbox.WriteFile(t.Context(), p, nil, fumehood.WriteOptions{}), p, fumehood.ErrConfig)
		}
		err := c.Sandbox.WriteFile(t.Context(), c.Path("x"), nil, fumehood.WriteOptions{Mode: fs.ModeSetuid | 0o755})
		wantFileError(t, err, c.Path("x"), fumehood.ErrConfig)
	}},
}

// wantFileError checks the error's classes, and that the error carries the path as given. It may run in any goroutine.
func wantFileError(t *testing.T, err error, path string, classes ...error) {
	t.Helper()
	e, ok := asError(err)
	if !ok || e.Path != path {
		t.Errorf("%q: the error does not have this path: %#v", path, err)
	}
	if got := fumehood.ClassOf(err); !errors.Is(got, classes[0]) || !matchesAll(err, classes) {
		t.Errorf("%q: the error's class is %v, want %v: %v", path, got, slices.Clone(classes), err)
	}
}

// wantSkipped reads an archive of the directory tree, which must have only its files and list what it leaves out. The Engine
// never lists sockets. It closes the archive.
func wantSkipped(t *testing.T, r io.ReadCloser, special []string) {
	t.Helper()
	defer r.Close()
	var names []string
	listed := ""
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Error(err)
			return
		}
		names, listed = append(names, head.Name), head.PAXRecords["FUMEHOOD.skipped"]
	}
	slices.Sort(names)
	if want := []string{"tree/", "tree/", "tree/file", "tree/sub/", "tree/sub/last"}; !slices.Equal(names, want) {
		t.Errorf("the entries are %q, want %q", names, want)
	}
	count, list, _ := strings.Cut(listed, "\x00")
	got := strings.Split(list, "\x00")
	slices.Sort(got)
	withoutSockets := slices.DeleteFunc(slices.Sorted(slices.Values(special)), func(s string) bool { return strings.HasPrefix(s, "socket ") })
	if all := slices.Sorted(slices.Values(special)); !slices.Equal(got, all) && !slices.Equal(got, withoutSockets) || count != strconv.Itoa(len(got)) {
		t.Errorf("it lists %q, want %q", listed, special)
	}
}

// neverOpened checks that reading and writing p fails at once, with an error of that class.
func neverOpened(t *testing.T, c *Case, p string, class error) {
	t.Helper()
	soon(t, "reading "+p, func() {
		_, err := c.Sandbox.ReadFile(t.Context(), p, fumehood.ReadOptions{})
		wantFileError(t, err, p, class)
	})
	soon(t, "writing "+p, func() {
		err := c.Sandbox.WriteFile(t.Context(), p, []byte("x"), fumehood.WriteOptions{})
		wantFileError(t, err, p, class)
	})
}
