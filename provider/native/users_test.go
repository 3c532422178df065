//go:build linux && (amd64 || arm64)

package native_test

import (
	"archive/tar"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// ways are the ways to start a sandbox.
var ways = map[string]func(t *testing.T) native.Options{
	"root":           func(*testing.T) native.Options { return native.Options{} },
	"user namespace": func(*testing.T) native.Options { return native.Options{UserNamespace: true} },
	"runc":           func(t *testing.T) native.Options { return withRuntime(t, "runc") },
	"runsc":          func(t *testing.T) native.Options { return withRuntime(t, "runsc") },
}

// A number is an id, even if a user or group of the image has it as its name.
func TestProvider_Start_numericUser(t *testing.T) {
	t.Parallel()
	need(t)
	image := hostile{files: []layerFile{
		file("etc/passwd", "root:x:0:0::/root:/bin/sh\n1000:x:0:0::/:/bin/sh\n2147483648:x:0:0::/:/bin/sh\n9223372036854775808:x:0:0::/:/bin/sh\n"),
		file("etc/group", "root:x:0:\n1601:x:0:\n"),
	}, config: func(c *v1.Config) { c.User = "1000:1601" }}
	for name, opts := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ref := image.provider(t, opts(t))
			sb := start(t, p, fumehood.Spec{Image: ref})
			const who = "echo $(id -u):$(id -g)"
			for user, want := range map[string]string{"": "1000:1601", "1000": "1000:0", "1001:": "1001:0", ":1601": "0:1601", "+1000:01601": "1000:1601"} {
				if got := run(t, sb.As(user), who); got != want {
					t.Errorf("user %q is %s, want %s", user, got, want)
				}
			}
			for _, user := range []string{"2147483648", "9223372036854775808", "0:2147483648"} {
				_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"id"}, User: user})
				conformance.WantError(t, err, fumehood.ErrUserNotFound, fumehood.ErrNotStarted)
				err = sb.As("0").WriteFile(t.Context(), "/new", nil, fumehood.WriteOptions{Owner: user})
				conformance.WantError(t, err, fumehood.ErrUserNotFound)
				_, err = p.Start(t.Context(), fumehood.Spec{Image: ref, User: user})
				conformance.WantError(t, err, fumehood.ErrConfig)
			}
			if err := sb.As("0").WriteFile(t.Context(), "/owned", nil, fumehood.WriteOptions{Owner: "1000:1601"}); err != nil {
				t.Fatal(err)
			}
			if got := run(t, sb, "stat -c %u:%g /owned"); got != "1000:1601" {
				t.Errorf("the file belongs to %s", got)
			}
		})
	}
}

// A user namespace has 65,536 users. Others are as unknown as a name that nobody has.
func TestOptions_UserNamespace_unmapped(t *testing.T) {
	t.Parallel()
	unmapped := func(t *testing.T) {
		p := newProvider(t, native.Options{UserNamespace: true})
		sb := start(t, p, fumehood.Spec{Image: busybox})
		for _, user := range []string{"70000", "1000:70000", "70000:70000"} {
			_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"id"}, User: user})
			conformance.WantError(t, err, fumehood.ErrUserNotFound, fumehood.ErrNotStarted)
			for _, atomic := range []bool{false, true} {
				err := sb.WriteFile(t.Context(), "/new", nil, fumehood.WriteOptions{Owner: user, Atomic: atomic})
				conformance.WantError(t, err, fumehood.ErrUserNotFound)
			}
			conformance.WantError(t, sb.Chown(t.Context(), "/etc", user), fumehood.ErrUserNotFound)
			conformance.WantError(t, sb.ChownAll(t.Context(), "/etc", user), fumehood.ErrUserNotFound)
			_, err = p.Start(t.Context(), fumehood.Spec{Image: busybox, User: user})
			conformance.WantError(t, err, fumehood.ErrConfig)
		}
	}
	t.Run("root", unmapped)
	t.Run("subordinate", func(t *testing.T) { withIDs(t, unmapped, debian, static) })
}

// A command starts in its service's directory also if its user may not enter it, as in Docker.
func TestProvider_Start_directoryOfRoot(t *testing.T) {
	t.Parallel()
	need(t)
	image := hostile{
		files: []layerFile{
			{tar.Header{Name: "w", Typeflag: tar.TypeDir, Mode: 0o700}, ""}, {tar.Header{Name: "other", Typeflag: tar.TypeDir, Mode: 0o700}, ""}, link("link", "w"),
		},
		config: func(c *v1.Config) { c.WorkingDir, c.User = "/w", "1000" },
	}
	for name, opts := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ref := image.provider(t, opts(t))
			sb := start(t, p, fumehood.Spec{Image: ref})
			conformance.WantEntered(t, sb, "/w")
			_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"pwd"}, Dir: "/other"})
			conformance.WantError(t, err, fumehood.ErrDirNotFound)
			if got := run(t, start(t, p, fumehood.Spec{Image: ref, Dir: "/link"}), "pwd -P"); got != "/w" {
				t.Errorf("by a link: %s", got)
			}
			// What a process has open is no directory to start in.
			sb = start(t, p, fumehood.Spec{Image: ref, Dir: "/proc/self/root/w"})
			_, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"pwd"}})
			conformance.WantError(t, err, fumehood.ErrDirNotFound)
		})
	}
}
