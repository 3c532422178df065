package conformance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var linkPromises = []promise{
	{name: "links inside the sandbox are followed", check: func(t *testing.T, c *Case) {
		c.Write(t, "dir/target", "behind the link")
		c.Run(t, "link", "dir/target", c.Path("relative"), probe.Then, "link", c.Path("dir/target"), c.Path("absolute"), probe.Then,
			"link", "dir", c.Path("to-dir"), probe.Then, "link", "relative", c.Path("to-link"))
		for _, name := range []string{"relative", "absolute", "to-dir/target", "to-link", "to-dir/../relative"} {
			if got := c.Read(t, name); got != "behind the link" {
				t.Errorf("%s: %q", name, got)
			}
		}
	}},
	{name: "write to a link changes its target", check: func(t *testing.T, c *Case) {
		c.Write(t, "target", "old")
		c.Run(t, "link", "target", c.Path("link"))
		c.Write(t, "link", "new")
		if got := c.Read(t, "target"); got != "new" {
			t.Errorf("the target holds %q", got)
		}
		if info, err := c.Sandbox.Stat(t.Context(), c.Path("link")); err != nil || info.Mode.Type() != fs.ModeSymlink {
			t.Errorf("the link became %+v, %v", info, err)
		}
	}},
	{name: "stat describes the link itself", check: func(t *testing.T, c *Case) {
		c.Run(t, "link", "no such target", c.Path("link"))
		info, err := c.Sandbox.Stat(t.Context(), c.Path("link"))
		if err != nil || info.Mode.Type() != fs.ModeSymlink || info.LinkTarget != "no such target" || info.Name != "link" || info.Size != 0 {
			t.Errorf("Stat returned %+v, %v", info, err)
		}
	}},
	{name: "links stay inside the sandbox", check: func(t *testing.T, c *Case) {
		for link, secret := range c.HostLinks(t) {
			got, err := c.Sandbox.ReadFile(t.Context(), c.Path(link), fumehood.ReadOptions{})
			if err == nil && strings.Contains(string(got), secret) {
				t.Errorf("%s read the host's file", link)
			} else if !errors.Is(err, fumehood.ErrNotFound) {
				t.Errorf("%s: got %q, %v, want an ErrNotFound", link, got, err)
			}
		}
	}},
	{name: "link loop is an error", check: func(t *testing.T, c *Case) {
		c.Run(t, "link", "b", c.Path("a"), probe.Then, "link", "a", c.Path("b"))
		_, err := c.Sandbox.ReadFile(t.Context(), c.Path("a"), fumehood.ReadOptions{})
		wantOurs(t, err)
		wantOurs(t, c.Sandbox.WriteFile(t.Context(), c.Path("a"), []byte("x"), fumehood.WriteOptions{}))
	}},
	{name: "stat works on looping links", check: func(t *testing.T, c *Case) {
		c.Run(t, "link", "b", c.Path("a"), probe.Then, "link", "a", c.Path("b"))
		if info, err := c.Sandbox.Stat(t.Context(), c.Path("a")); err != nil || info.LinkTarget != "b" {
			t.Errorf("Stat returned %+v, %v", info, err)
		}
	}},
}

// HostLinks creates links in the promise's directory that point to files of the host, by absolute paths and by "..". It
// returns the content of those files, by link.
func (c *Case) HostLinks(t *testing.T) map[string]string {
	t.Helper()
	const secret = "the host's own"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 40)
	c.Run(t, "link", file, c.Path("absolute"), probe.Then, "link", up+strings.TrimPrefix(file, "/"), c.Path("relative"), probe.Then,
		"link", filepath.Dir(file), c.Path("dir"))
	return map[string]string{"absolute": secret, "relative": secret, "dir/secret": secret}
}

// wantOurs checks that err has a class and is not an infrastructure error.
func wantOurs(t *testing.T, err error) {
	t.Helper()
	if c := fumehood.ClassOf(err); c == nil || errors.Is(c, fumehood.ErrInfrastructure) {
		t.Errorf("got %v, of class %v", err, c)
	}
}

func asError(err error) (*fumehood.Error, bool) {
	var e *fumehood.Error
	ok := errors.As(err, &e)
	return e, ok
}

func matchesAll(err error, classes []error) bool {
	for _, c := range classes {
		if !errors.Is(err, c) {
			return false
		}
	}
	return true
}
