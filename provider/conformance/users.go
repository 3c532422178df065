package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

var userPromises = []promise{
	{name: "As sets the commands' default user", check: func(t *testing.T, c *Case) {
		u := c.Harness.Users
		cmd := c.Probe("id")
		cmd.Dir = "/"
		res, err := c.Sandbox.As(c.other()).Exec(t.Context(), cmd)
		if want := fmt.Sprintf("%d:%d", u.UID, u.GID); err != nil || res.Stdout.Text() != want {
			t.Errorf("got %+v, %v, want %s", res, err, want)
		}
		if got := c.Sandbox.As(c.other()).ServiceInfo().User; got != c.other() {
			t.Errorf("ServiceInfo has the user %q", got)
		}
		cmd.User = "4321:8765"
		if res, err := c.Sandbox.As(c.other()).Exec(t.Context(), cmd); err != nil || res.Stdout.Text() != cmd.User {
			t.Errorf("got %+v, %v, want %s", res, err, cmd.User)
		}
		cmd.User = ""
		if res, err := c.Sandbox.As(c.other()).As("").Exec(t.Context(), cmd); err != nil || res.Stdout.Text() != c.Run(t, "id") {
			t.Errorf("the service's own user became %+v, %v", res, err)
		}
	}},
	{name: "As sets the owner of new files", check: func(t *testing.T, c *Case) {
		c.openDir(t, "shared")
		as, p := c.Sandbox.As(c.other()), c.Path("shared/dir/file")
		if err := as.WriteFile(t.Context(), p, []byte("x"), fumehood.WriteOptions{Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"shared/dir", "shared/dir/file"} {
			info, err := as.Stat(t.Context(), c.Path(name))
			if err != nil || info.UID != c.Harness.Users.UID || info.GID != c.Harness.Users.GID {
				t.Errorf("%s: Stat returned %+v, %v", name, info, err)
			}
		}
		if got, err := as.ReadFile(t.Context(), p, fumehood.ReadOptions{}); err != nil || string(got) != "x" {
			t.Errorf("got %q, %v", got, err)
		}
	}},
	{name: "As enforces the user's permissions", check: func(t *testing.T, c *Case) {
		if err := c.Sandbox.WriteFile(t.Context(), c.Path("private"), []byte("x"), fumehood.WriteOptions{Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		c.Write(t, "dir/file", "x")
		as, dir, file := c.Sandbox.As(c.other()), c.Path("dir"), c.Path("dir/file")
		_, err := as.ReadFile(t.Context(), c.Path("private"), fumehood.ReadOptions{})
		wantFileError(t, err, c.Path("private"), fumehood.ErrPermission)
		for _, opts := range []fumehood.WriteOptions{{}, {Atomic: true}} {
			for _, p := range []string{c.Path("dir/new"), file} {
				wantFileError(t, as.WriteFile(t.Context(), p, nil, opts), p, fumehood.ErrPermission)
			}
		}
		wantFileError(t, as.Mkdir(t.Context(), dir+"/new", fumehood.MkdirOptions{Parents: true}), dir+"/new", fumehood.ErrPermission)
		wantFileError(t, as.Symlink(t.Context(), "x", dir+"/new"), dir+"/new", fumehood.ErrPermission)
		wantFileError(t, as.Rename(t.Context(), file, dir+"/new"), file, fumehood.ErrPermission)
		wantFileError(t, as.Chmod(t.Context(), file, 0o666), file, fumehood.ErrPermission)
		wantFileError(t, as.Chown(t.Context(), file, c.other()), file, fumehood.ErrPermission)
		for _, recursive := range []bool{false, true} {
			opts := fumehood.RemoveOptions{Recursive: recursive}
			wantFileError(t, as.Remove(t.Context(), file, opts), file, fumehood.ErrPermission)
			wantFileError(t, as.Remove(t.Context(), dir, fumehood.RemoveOptions{Recursive: true}), dir, fumehood.ErrPermission)
		}
		c.Write(t, "dir/deep/file", "x")
		err = as.Remove(t.Context(), dir, fumehood.RemoveOptions{Recursive: true})
		if err == nil || !strings.Contains(err.Error(), dir+"/deep/file") && !strings.Contains(err.Error(), file) {
			t.Errorf("the error does not name the file that could not be removed: %v", err)
		}
		wantFileError(t, as.Upload(t.Context(), dir, bytes.NewReader(tarOf(t, []entry{{name: "new", mode: 0o644}}))), dir, fumehood.ErrPermission)
		if got := c.Read(t, "dir/file"); got != "x" {
			t.Errorf("the file holds %q", got)
		}
	}},
	{name: "root has full access or is refused", check: func(t *testing.T, c *Case) {
		file, want := c.Path("file"), "theirs"
		if err := c.Sandbox.WriteFile(t.Context(), file, []byte(want), fumehood.WriteOptions{Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		cmd := c.Probe("append", file, ", root's")
		cmd.User, cmd.Dir = "0:0", "/"
		res, err := c.Sandbox.Exec(t.Context(), cmd)
		switch {
		case err == nil && res.Success():
			want += ", root's"
		case !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "root would have no capabilities"):
			t.Errorf("as root: %+v, %v", res, err)
		}
		if got := c.Read(t, "file"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}},
	{name: "walk continues past unreadable directories", check: func(t *testing.T, c *Case) {
		c.Write(t, "tree/closed/file", "x")
		c.Write(t, "tree/open", "x")
		if err := c.Sandbox.Chmod(t.Context(), c.Path("tree/closed"), 0o700); err != nil {
			t.Fatal(err)
		}
		got := ""
		for e, err := range c.Sandbox.As(c.other()).Walk(t.Context(), c.Path("tree")) {
			got += e.Path + " "
			if e.Path == "closed" {
				wantFileError(t, err, c.Path("tree/closed"), fumehood.ErrPermission)
				if e.Mode != fs.ModeDir|0o700 {
					t.Errorf("Walk yielded %+v", e)
				}
			} else if err != nil {
				t.Error(err)
			}
		}
		if got != ". closed open " {
			t.Errorf("Walk yielded %s", got)
		}
		_, err := c.Sandbox.As(c.other()).List(t.Context(), c.Path("tree/closed"))
		wantFileError(t, err, c.Path("tree/closed"), fumehood.ErrPermission)
	}},
	{name: "As with an unknown user always fails", check: func(t *testing.T, c *Case) {
		for _, user := range append(outOfRange(), c.Harness.Users.Unknown) {
			_, err := c.Sandbox.As(user).Stat(t.Context(), c.Dir)
			wantFileError(t, err, c.Dir, fumehood.ErrUserNotFound)
		}
		as, p := c.Sandbox.As(c.Harness.Users.Unknown), c.Path("file")
		_, err := as.List(t.Context(), c.Dir)
		wantFileError(t, err, c.Dir, fumehood.ErrUserNotFound)
		wantFileError(t, as.WriteFile(t.Context(), p, nil, fumehood.WriteOptions{}), p, fumehood.ErrUserNotFound)
		wantFileError(t, as.Mkdir(t.Context(), p, fumehood.MkdirOptions{}), p, fumehood.ErrUserNotFound)
		_, err = as.Exec(t.Context(), c.Probe("id"))
		WantError(t, err, fumehood.ErrUserNotFound)
		_, err = c.Sandbox.As("a\x00b").Stat(t.Context(), c.Dir)
		wantFileError(t, err, c.Dir, fumehood.ErrConfig)
	}},
	{name: "stat reports the owner", check: func(t *testing.T, c *Case) {
		c.Write(t, "dir/file", "x")
		for _, name := range []string{"dir", "dir/file"} {
			info, err := c.Sandbox.Stat(t.Context(), c.Path(name))
			if got, want := fmt.Sprintf("%d:%d", info.UID, info.GID), c.Run(t, "id"); err != nil || got != want {
				t.Errorf("%s is owned by %s, %v, want %s", name, got, err, want)
			}
		}
	}},
	{name: "file gets the named owner if permitted", check: func(t *testing.T, c *Case) {
		c.Write(t, "replaced", "a long first content")
		c.Write(t, "given", "x")
		mine := c.Run(t, "id")
		may := func(err error) bool {
			if mine[:2] == "0:" && err != nil || mine[:2] != "0:" && !errors.Is(err, fumehood.ErrPermission) {
				t.Errorf("as %s: %v", mine, err)
			}
			return err == nil
		}
		want := fmt.Sprintf("%d:%d", c.Harness.Users.UID, c.Harness.Users.GID)
		owned := func(name string) {
			info, err := c.Sandbox.Stat(t.Context(), c.Path(name))
			if got := fmt.Sprintf("%d:%d", info.UID, info.GID); err != nil || got != want {
				t.Errorf("%s is owned by %s, %v, want %s", name, got, err, want)
			}
		}
		for name, opts := range map[string]fumehood.WriteOptions{"new": {}, "replaced": {}, "atomic": {Atomic: true}} {
			opts.Owner = c.other()
			if may(c.Sandbox.WriteFile(t.Context(), c.Path(name), []byte("x"), opts)) {
				owned(name)
			}
		}
		c.Write(t, "kept/file", "x")
		if may(c.Sandbox.WriteFile(t.Context(), c.Path("kept/fresh/dir/file"), []byte("x"), fumehood.WriteOptions{Owner: c.other()})) {
			for _, name := range []string{"kept/fresh", "kept/fresh/dir", "kept/fresh/dir/file"} {
				owned(name)
			}
		}
		if may(c.Sandbox.Mkdir(t.Context(), c.Path("kept/made/below"), fumehood.MkdirOptions{Parents: true, Owner: c.other()})) {
			owned("kept/made")
			owned("kept/made/below")
		}
		if may(c.Sandbox.Chown(t.Context(), c.Path("given"), c.other())) {
			owned("given")
		}
		want = mine
		owned("kept")
		if err := c.Sandbox.Symlink(t.Context(), "given", c.Path("link")); err != nil {
			t.Fatal(err)
		}
		if err := c.Sandbox.Chown(t.Context(), c.Path("link"), mine); err != nil {
			t.Error(err)
		}
		owned("link")
		p := c.Path("none")
		wantFileError(t, c.Sandbox.Chown(t.Context(), p, mine), p, fumehood.ErrNotFound)
	}},
	{name: "chown changes a link, not its target", check: func(t *testing.T, c *Case) {
		if err := c.Sandbox.Symlink(t.Context(), "/no/such/target", c.Path("link")); err != nil {
			t.Fatal(err)
		}
		if err := c.Sandbox.Chown(t.Context(), c.Path("link"), c.Run(t, "id")); err != nil {
			t.Error(err)
		}
	}},
	{name: "chown changes trees but no link targets", check: func(t *testing.T, c *Case) {
		c.Write(t, "outside", "x")
		c.Write(t, "dir/below/file", "x")
		for link, target := range map[string]string{"dir/up": "..", "dir/below/link": "../../outside", "top": "dir"} {
			if err := c.Sandbox.Symlink(t.Context(), target, c.Path(link)); err != nil {
				t.Fatal(err)
			}
		}
		mine := c.Run(t, "id")
		for _, step := range []struct {
			path  string
			files []string
		}{{"top", []string{"top"}}, {"dir", []string{"top", "dir", "dir/up", "dir/below", "dir/below/file", "dir/below/link"}}} {
			err := c.Sandbox.ChownAll(t.Context(), c.Path(step.path), c.other())
			if !strings.HasPrefix(mine, "0:") {
				wantFileError(t, err, c.Path(step.path), fumehood.ErrPermission)
				step.files = nil
			} else if err != nil {
				t.Error(err)
			}
			for _, name := range []string{".", "outside", "top", "dir", "dir/up", "dir/below", "dir/below/file", "dir/below/link"} {
				want := mine
				if slices.Contains(step.files, name) {
					want = c.other()
				}
				info, err := c.Sandbox.Stat(t.Context(), c.Path(name))
				if got := fmt.Sprintf("%d:%d", info.UID, info.GID); err != nil || got != want {
					t.Errorf("after %s, %s is owned by %s, %v, want %s", step.path, name, got, err, want)
				}
			}
		}
		p := c.Path("none")
		wantFileError(t, c.Sandbox.ChownAll(t.Context(), p, mine), p, fumehood.ErrNotFound)
	}},
	{name: "unknown owner is an error, nothing is written", check: func(t *testing.T, c *Case) {
		for owner, class := range badOwners(c) {
			p := c.Path("file")
			err := c.Sandbox.WriteFile(t.Context(), p, nil, fumehood.WriteOptions{Owner: owner})
			wantFileError(t, err, p, class)
			_, err = c.Sandbox.Stat(t.Context(), p)
			wantFileError(t, err, p, fumehood.ErrNotFound)
		}
		for _, owner := range outOfRange() {
			wantFileError(t, c.Sandbox.WriteFile(t.Context(), c.Path("file"), nil, fumehood.WriteOptions{Owner: owner}), c.Path("file"), fumehood.ErrUserNotFound)
		}
	}},
	{name: "chown to an unknown owner is an error", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "x")
		unknown := c.Harness.Users.Unknown
		for owner, class := range map[string]error{
			unknown: fumehood.ErrUserNotFound, "0:" + unknown: fumehood.ErrUserNotFound, "": fumehood.ErrConfig, ":0": fumehood.ErrConfig,
		} {
			wantFileError(t, c.Sandbox.Chown(t.Context(), c.Path("file"), owner), c.Path("file"), class)
		}
	}},
}

// badOwners returns owners that a new file cannot have, with the classes of the errors.
func badOwners(c *Case) map[string]error {
	unknown := c.Harness.Users.Unknown
	return map[string]error{
		unknown: fumehood.ErrUserNotFound, "0:" + unknown: fumehood.ErrUserNotFound, "-1": fumehood.ErrUserNotFound,
		":": fumehood.ErrConfig, ":0": fumehood.ErrConfig, "0:": fumehood.ErrConfig, "0\x00": fumehood.ErrConfig,
	}
}

// outOfRange returns numbers that are not ids. The last ones have more than 63 bits.
func outOfRange() []string {
	return []string{"2147483648", "0:2147483648", "9223372036854775808", "0:9223372036854775808"}
}

// other returns the other user as numeric IDs, which work without a user database.
func (c *Case) other() string { return fmt.Sprintf("%d:%d", c.Harness.Users.UID, c.Harness.Users.GID) }

// openDir creates a directory that every user may write to.
func (c *Case) openDir(t *testing.T, name string) {
	t.Helper()
	if err := c.Sandbox.Mkdir(t.Context(), c.Path(name), fumehood.MkdirOptions{Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
}

// NoUsers returns the exceptions to the promises about users, for a provider that does everything as one user and
// refuses all others.
func NoUsers(reason string) map[string]Exception {
	all := map[string]Exception{}
	refused := Exception{Reason: reason + "; ErrUnsupported", Check: func(t *testing.T, c *Case) {
		cmd := c.Probe("append", c.Path("ran"), "x")
		cmd.User = "0:0"
		wantRefused(t, c, cmd, fumehood.ErrUnsupported)
		as := c.Sandbox.As("0:0")
		_, err := as.Exec(t.Context(), c.Probe("append", c.Path("ran"), "x"))
		WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.Stat(t.Context(), c.Dir)
		WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.ReadFile(t.Context(), c.Path("here"), fumehood.ReadOptions{})
		WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.List(t.Context(), c.Dir)
		WantError(t, err, fumehood.ErrUnsupported)
		_, err = as.Download(t.Context(), c.Dir)
		WantError(t, err, fumehood.ErrUnsupported)
		WantError(t, as.Upload(t.Context(), c.Dir, nil), fumehood.ErrUnsupported)
		WantError(t, as.WriteFile(t.Context(), c.Path("ran"), nil, fumehood.WriteOptions{}), fumehood.ErrUnsupported)
		WantError(t, as.Mkdir(t.Context(), c.Path("ran"), fumehood.MkdirOptions{}), fumehood.ErrUnsupported)
		_, err = c.Sandbox.Stat(t.Context(), c.Path("ran"))
		WantError(t, err, fumehood.ErrNotFound)
	}}
	for _, name := range []string{
		"exec/commands run as a named user", "exec/commands run as a numeric user",
		"exec/commands run as any UID and GID",
		"start/unknown user is an error",
		"users/As sets the commands' default user", "users/As sets the owner of new files",
		"users/As enforces the user's permissions",
		"users/root has full access or is refused",
		"users/walk continues past unreadable directories",
		"users/As with an unknown user always fails",
	} {
		all[name] = refused
	}
	return all
}
