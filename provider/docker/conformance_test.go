package docker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/probe"
	"github.com/fumehood/fumehood/test/tier"
)

// tiers are the columns that run in a tier smaller than All.
var tiers = map[string]tier.Tier{
	"docker guest debian user":                    tier.Quick,
	"docker engine debian user":                   tier.Quick, // transportGroups is all that it covers
	"docker guest static user":                    tier.CI,
	"docker guest of another process debian user": tier.CI,
}

// transportGroups are the groups of promises that depend most on the transport.
var transportGroups = []string{"exec", "start", "stdin", "output", "end", "files", "archives"}

func TestPromises(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		spec  fumehood.Spec
		users conformance.Users
	}{
		{"debian root", fumehood.Spec{Image: debian}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}},
		{"debian user", fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester"}, conformance.Users{Name: "daemon", UID: 1, GID: 1}},
		{"busybox root", fumehood.Spec{Image: busybox}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}},
		{"busybox user", fumehood.Spec{Image: busybox, User: "tester", Dir: "/home/tester"}, conformance.Users{Name: "nobody", UID: 65534, GID: 65534}},
		{"static root", fumehood.Spec{Image: static}, conformance.Users{UID: 1000, GID: 0}},
		{"static user", fumehood.Spec{Image: static, User: "1000", Dir: "/home"}, conformance.Users{UID: 2000, GID: 0}},
	} {
		for _, way := range []struct {
			name string
			opts docker.Options
		}{
			{"guest", docker.Options{}},
			{"guest without socket", docker.Options{NoSockets: true}},
			{opened, docker.Options{}},
			{"engine", docker.Options{Transport: docker.TransportEngine}},
		} {
			exceptions := maps.Clone(engineExceptions)
			maps.Copy(exceptions, conformance.NoRlimits("no rlimits in the Engine's exec"))
			for _, promise := range append(conformance.Promises("changes"), conformance.Promises("walk")...) {
				exceptions[promise] = noChanges
			}
			if way.opts.Transport == "" {
				exceptions = map[string]conformance.Exception{}
				if c.spec.User == "" {
					exceptions["errors/forbidden file is ErrPermission"] = conformance.RootMayAll
				}
			}
			switch {
			case c.name != "debian user" && (way.opts.NoSockets || way.name == opened):
				continue // image and user make no difference there
			case way.name == opened:
				exceptions["stop/sandbox not kept cannot be stopped"] = conformance.AlwaysKept
			case c.spec.Image == static:
				exceptions["exec/commands run as a named user"] = conformance.NoUserNames
			}
			column{
				name: "docker " + way.name + " " + c.name, spec: c.spec, users: c.users, opts: way.opts, opened: way.name == opened, exceptions: exceptions,
			}.run(t, program)
		}
	}
	column{
		name:  "docker guest compose project busybox root",
		spec:  fumehood.Spec{Compose: project(t, twoOwnPrograms)},
		users: conformance.Users{Name: "tester", UID: 1000, GID: 1000},
		exceptions: map[string]conformance.Exception{
			"errors/forbidden file is ErrPermission": conformance.RootMayAll,
		},
	}.run(t, program)
}

// twoOwnPrograms is a project whose services run their own programs, so that their guests are started by execs.
const twoOwnPrograms = `
services:
  default: {image: fumehood-test/busybox, command: [busybox, httpd, -f, -p, "80"], depends_on: [other]}
  other: {image: fumehood-test/busybox, command: [busybox, httpd, -f, -p, "80"]}
`

// column is one column of docs/promises.json.
type column struct {
	name       string
	spec       fumehood.Spec
	users      conformance.Users
	opts       docker.Options
	as         string // the user that runs commands without a user; empty means the service's own
	opened     bool   // used by a process that has not started it, so that it is kept
	exceptions map[string]conformance.Exception
}

func (c column) run(t *testing.T, program []byte) {
	t.Run(c.name, func(t *testing.T) {
		from, ok := tiers[c.name]
		if !ok {
			from = tier.All
		}
		tier.Need(t, from)
		t.Parallel()
		var groups []string
		if c.opts.Transport == docker.TransportEngine {
			groups = tier.Pick(t, transportGroups, transportGroups, nil)
		}
		p := newProvider(t, c.opts)
		probe := c.spec.Dir + "/probe"
		begin := func(t *testing.T, keep bool) fumehood.Sandbox {
			spec := c.spec
			spec.Keep = keep || c.opened
			if spec.Image == static && spec.User != "" {
				spec.Mounts = []fumehood.Mount{home(t, spec.Dir)}
			}
			sb := start(t, p, spec)
			if spec.Keep {
				removedAfter(t, p, sb.Info().Name)
			}
			if c.opened {
				sb = again(t, p, sb)
			}
			if c.as != "" {
				sb = usedAs{sb.As(c.as), whole{sb}}
			}
			if err := sb.WriteFile(t.Context(), probe, program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			return sb
		}
		conformance.Run(t, conformance.Harness{
			Column: c.name, Probe: probe, Users: c.users, Exceptions: c.exceptions, Groups: groups,
			Start:     func(t *testing.T) fumehood.Sandbox { return begin(t, false) },
			StartKept: func(t *testing.T) fumehood.Sandbox { return begin(t, true) },
		})
	})
}

// home mounts a folder in which every user may write, for an image that has none.
func home(t *testing.T, path string) fumehood.Mount {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // regardless of the umask
		t.Fatal(err)
	}
	return fumehood.Mount{Host: dir, Container: path, Writable: true}
}

// usedAs is a sandbox whose default service is used as another user.
type usedAs struct {
	fumehood.Service
	whole // its Service methods are embedded deeper, so they are hidden
}

type whole struct{ fumehood.Sandbox }

// opened is the column of a process that has not started the sandbox.
const opened = "guest of another process"

// again closes a kept sandbox and opens it.
func again(t *testing.T, p *docker.Provider, sb fumehood.Sandbox) fumehood.Sandbox {
	t.Helper()
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb, err := p.Open(t.Context(), sb.Info().Name)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// removedAfter removes a kept sandbox, which must still exist, when t ends.
func removedAfter(t *testing.T, p *docker.Provider, name string) {
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		found, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{name}})
		if err != nil || !slices.ContainsFunc(found, func(l provider.Leftover) bool { return l.Sandbox == name && l.Removed }) {
			t.Errorf("the kept sandbox does not exist any more: %+v, %v", found, err)
		}
	})
}

// engineExceptions is what the engine transport does instead of the promises that it cannot keep.
var engineExceptions = map[string]conformance.Exception{
	"exec/signals differ from exits": {
		Reason: "Engine reports only exit code 128+n",
		Check: func(t *testing.T, c *conformance.Case) {
			res := c.Exec(t, c.Probe("raise", "15"))
			if res.Outcome != fumehood.Exited || res.ExitCode != 143 || res.Signal != 0 {
				t.Errorf("got %s, code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
			}
		},
	},
	"exec/non-UTF-8 arguments and variables are exact": {
		Reason: "Engine API is JSON; ErrUnsupported",
		Check: conformance.Refuses(func(c *conformance.Case) fumehood.Cmd {
			return c.Probe("append", c.Path("ran"), "\xff\xfe")
		}),
	},
	"start/invalid executable is an error": {
		Reason: "runc fails late: exit code 1 or 255, message on stderr",
		Check: func(t *testing.T, c *conformance.Case) {
			if err := c.Sandbox.WriteFile(t.Context(), c.Path("text"), []byte("just text\n"), fumehood.WriteOptions{Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			cmd := c.Probe()
			cmd.Args = []string{c.Path("text")}
			res := c.Exec(t, cmd)
			if res.Outcome != fumehood.Exited || res.ExitCode != 1 && res.ExitCode != 255 || !strings.Contains(res.Stderr.Text(), "exec format error") {
				t.Errorf("got %s, code %d, %q", res.Outcome, res.ExitCode, res.Stderr.Text())
			}
		},
	},
	"stdin/reader error ends the command and is returned": {
		Reason: "Engine cannot end an exec: error returned, stdin ends, program runs on",
		Check: func(t *testing.T, c *conformance.Case) {
			broken := errors.New("the disk is gone")
			cmd := c.Probe("cat")
			cmd.Stdin = iotest.ErrReader(broken)
			_, err := c.Sandbox.Exec(t.Context(), cmd)
			conformance.WantError(t, err, fumehood.ErrConfig, broken)
		},
	},
	"tty/terminal has the given size and one stream": lateSize("31", "117", 31, 117),
	"tty/default size is 24 by 80":                   lateSize("24", "80", 0, 0),
	"end/timeout ends plain children, nothing else":  unkilledTimeout,
	"end/timeout ends all descendants, nothing else": unkilledTimeout,
	"end/cancel ends all descendants, nothing else": {
		Reason: unkilledReason,
		Check: func(t *testing.T, c *conformance.Case) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := c.Sandbox.Start(ctx, c.Probe("beat", c.Path("beat")))
			if err != nil {
				t.Fatal(err)
			}
			c.Exists(t, "beat")
			cancel()
			_, err = p.Wait(t.Context())
			conformance.WantError(t, err, fumehood.ErrCanceled)
			c.Alive(t, "beat")
			c.Stop(t, "beat")
		},
	},
	"end/kill ends all descendants, nothing else":     unkilledKill,
	"end/killed command is signaled":                  unkilledKill,
	"end/kill by the caller is the reason of the end": unkilledKill,
	"end/KillRest kills background children":          conformance.RestLives(unkilledReason + "; Leaked is set"),
	"end/leaving a stream ends the command": {
		Reason: unkilledReason,
		Check: func(t *testing.T, c *conformance.Case) {
			for _, err := range c.Sandbox.Stream(t.Context(), c.Probe("print", "x", probe.Then, "beat", c.Path("beat"))) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			c.Alive(t, "beat")
			c.Stop(t, "beat")
		},
	},
	"process/signals can be handled":                   noSignals,
	"process/unhandled signals end the program":        noSignals,
	"detached/signals can be handled":                  noSignals,
	"detached/kill ends all descendants, nothing else": unkilledKill,
	"users/As sets the owner of new files": {
		Reason: "owner is right but unreported: UID and GID are -1",
		Check: func(t *testing.T, c *conformance.Case) {
			as := c.Sandbox.As(fmt.Sprintf("%d:%d", c.Harness.Users.UID, c.Harness.Users.GID))
			if err := as.WriteFile(t.Context(), c.Path("dir/file"), nil, fumehood.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			ownedBy(t, c, "dir/file")
			ownedBy(t, c, "dir/new")
		},
	},
	"users/As enforces the user's permissions": {
		Reason: "file access uses the daemon's rights",
		Check: func(t *testing.T, c *conformance.Case) {
			if err := c.Sandbox.WriteFile(t.Context(), c.Path("private"), []byte("x"), fumehood.WriteOptions{Mode: 0o600}); err != nil {
				t.Fatal(err)
			}
			as := c.Sandbox.As(fmt.Sprintf("%d:%d", c.Harness.Users.UID, c.Harness.Users.GID))
			if got, err := as.ReadFile(t.Context(), c.Path("private"), fumehood.ReadOptions{}); err != nil || string(got) != "x" {
				t.Errorf("got %q, %v", got, err)
			}
		},
	},
	"users/walk continues past unreadable directories": noChanges,
	"users/As with an unknown user always fails": {
		Reason: "reads use the daemon's rights; other calls are ErrUserNotFound",
		Check: func(t *testing.T, c *conformance.Case) {
			as := c.Sandbox.As(c.Harness.Users.Unknown)
			_, err := as.Exec(t.Context(), c.Probe("id"))
			conformance.WantError(t, err, fumehood.ErrUserNotFound)
			conformance.WantError(t, as.WriteFile(t.Context(), c.Path("file"), nil, fumehood.WriteOptions{}), fumehood.ErrUserNotFound)
			if _, err := as.ReadFile(t.Context(), c.Path("here"), fumehood.ReadOptions{}); err != nil {
				t.Error(err)
			}
		},
	},
	"users/stat reports the owner": {
		Reason: "owner is unreported: UID and GID are -1",
		Check: func(t *testing.T, c *conformance.Case) {
			for _, p := range []string{c.Dir, c.Path("here")} {
				if info, err := c.Sandbox.Stat(t.Context(), p); err != nil || info.UID != -1 || info.GID != -1 {
					t.Errorf("stat says %+v, %v", info, err)
				}
			}
		},
	},
	"users/file gets the named owner if permitted": {
		Reason: "writes set any owner with the daemon's rights; Chown is ErrUnsupported",
		Check: func(t *testing.T, c *conformance.Case) {
			opts := fumehood.WriteOptions{Owner: fmt.Sprintf("%d:%d", c.Harness.Users.UID, c.Harness.Users.GID)}
			for range 2 { // created, then replaced
				if err := c.Sandbox.WriteFile(t.Context(), c.Path("file"), nil, opts); err != nil {
					t.Fatal(err)
				}
				ownedBy(t, c, "file")
			}
			conformance.WantError(t, c.Sandbox.Chown(t.Context(), c.Path("file"), "0:0"), fumehood.ErrUnsupported)
		},
	},
	"users/chown changes a link, not its target":    noChanges,
	"users/chown changes trees but no link targets": noChanges,
	"users/chown to an unknown owner is an error":   noChanges,
	"errors/forbidden file is ErrPermission": {
		Reason: "file access uses the daemon's rights",
		Check: func(t *testing.T, c *conformance.Case) {
			c.Write(t, "secret", "x")
			if got := c.Read(t, "secret"); got != "x" {
				t.Errorf("got %q", got)
			}
			if info, err := c.Sandbox.Stat(t.Context(), "/etc/shadow"); err == nil && info.Size > 0 {
				if _, err := c.Sandbox.ReadFile(t.Context(), "/etc/shadow", fumehood.ReadOptions{}); err != nil {
					t.Errorf("/etc/shadow: %v", err)
				}
			}
		},
	},
	"errors/devices are never opened": {
		Reason: "Engine does not see mounts such as /dev, /proc and /sys; ErrUnsupported",
		Check: func(t *testing.T, c *conformance.Case) {
			for _, p := range []string{"/dev/null", "/proc/1/environ", "/sys/kernel"} {
				_, err := c.Sandbox.ReadFile(t.Context(), p, fumehood.ReadOptions{})
				conformance.WantError(t, err, fumehood.ErrUnsupported)
				conformance.WantError(t, c.Sandbox.WriteFile(t.Context(), p, nil, fumehood.WriteOptions{}), fumehood.ErrUnsupported)
			}
		},
	},
	"links/stat works on looping links": {
		Reason: "Engine follows the link; ErrNotFound",
		Check: func(t *testing.T, c *conformance.Case) {
			c.Run(t, "link", "b", c.Path("a"), probe.Then, "link", "a", c.Path("b"))
			_, err := c.Sandbox.Stat(t.Context(), c.Path("a"))
			conformance.WantError(t, err, fumehood.ErrNotFound)
		},
	},
}

// noChanges is the exception for changes that the Engine's archive API does not support.
var noChanges = conformance.Exception{
	Reason: "Engine only transfers archives; ErrUnsupported",
	Check: func(t *testing.T, c *conformance.Case) {
		c.Write(t, "file", "x")
		dir, file := c.Path("new"), c.Path("file")
		id := c.Run(t, "id")
		for name, err := range map[string]error{
			"mkdir":        c.Sandbox.Mkdir(t.Context(), dir, fumehood.MkdirOptions{}),
			"remove":       c.Sandbox.Remove(t.Context(), file, fumehood.RemoveOptions{Recursive: true}),
			"rename":       c.Sandbox.Rename(t.Context(), file, dir),
			"symlink":      c.Sandbox.Symlink(t.Context(), file, dir),
			"chmod":        c.Sandbox.Chmod(t.Context(), file, 0o600),
			"chown":        c.Sandbox.Chown(t.Context(), file, id),
			"chown of all": c.Sandbox.ChownAll(t.Context(), c.Dir, id),
			"atomic write": c.Sandbox.WriteFile(t.Context(), file, nil, fumehood.WriteOptions{Atomic: true}),
		} {
			var e *fumehood.Error
			if !errors.Is(err, fumehood.ErrUnsupported) || !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := c.Sandbox.List(t.Context(), c.Dir)
		conformance.WantError(t, err, fumehood.ErrUnsupported)
		for _, err := range c.Sandbox.Walk(t.Context(), c.Dir) {
			conformance.WantError(t, err, fumehood.ErrUnsupported)
		}
		if got := c.Read(t, "file"); got != "x" {
			t.Errorf("the file holds %q", got)
		}
	},
}

// ownedBy checks that a file of mode 0644 belongs to the other user, by writing to it.
func ownedBy(t *testing.T, c *conformance.Case, name string) {
	t.Helper()
	cmd := c.Probe("append", c.Path(name), "x")
	cmd.User, cmd.Dir = fmt.Sprintf("%d:%d", c.Harness.Users.UID, c.Harness.Users.GID), "/"
	c.Succeed(t, cmd)
}

const unkilledReason = "Engine cannot end an exec: processes run until close"

var (
	unkilledTimeout = conformance.Exception{
		Reason: unkilledReason + "; Leaked is set",
		Check: func(t *testing.T, c *conformance.Case) {
			res := c.TimeOut(t, c.Probe("print", "ready", probe.Then, "beat", c.Path("beat")),
				func(res *fumehood.Result) bool { return res.Stdout.Total > 0 })
			if res.Outcome != fumehood.TimedOut || !res.Leaked || res.Stdout.Text() != "ready" {
				t.Errorf("got %+v", res)
			}
			c.Alive(t, "beat")
			c.Stop(t, "beat")
		},
	}
	unkilledKill = conformance.Exception{
		Reason: unkilledReason + "; outcome lost, Leaked is set",
		Check: func(t *testing.T, c *conformance.Case) {
			p := c.Start(t, c.Probe("print", "ready", probe.Then, "beat", c.Path("beat")))
			for _, err := range p.Events() { // output in transit is lost when the exec is given up
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			c.Exists(t, "beat")
			if err := p.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			res, err := p.Wait(t.Context())
			if err != nil || res.Outcome != fumehood.Lost || res.ExitCode != -1 || !res.Leaked || res.Stdout.Text() != "ready" {
				t.Errorf("got %+v, %v", res, err)
			}
			c.Alive(t, "beat")
			c.Stop(t, "beat")
		},
	}
	noSignals = conformance.Exception{
		Reason: "Engine cannot signal an exec; ErrUnsupported",
		Check: func(t *testing.T, c *conformance.Case) {
			p := c.Start(t, c.Probe("wait", c.Path("go")))
			conformance.WantError(t, p.Signal(t.Context(), 15), fumehood.ErrUnsupported)
			c.Write(t, "go", "")
			if res, err := p.Wait(t.Context()); err != nil || !res.Success() {
				t.Errorf("got %+v, %v", res, err)
			}
		},
	}
)

// lateSize is the exception for an Engine before 23.0, which sets a terminal's first size just after the start.
func lateSize(wantRows, wantCols string, rows, cols uint16) conformance.Exception {
	return conformance.Exception{
		Reason: "Engine before 23.0 sets the size after the start",
		Check: func(t *testing.T, c *conformance.Case) {
			cmd := c.Probe("tty", wantRows, wantCols, probe.Then, "printerr", "to err")
			cmd.TTY, cmd.Rows, cmd.Cols = true, rows, cols
			res := c.Succeed(t, cmd)
			want := "tty " + wantRows + " " + wantCols + "\r\nto err"
			if got := res.Stdout.Text(); !strings.HasSuffix(got, want) || res.Stderr.Total != 0 {
				t.Errorf("stdout %q, stderr %q", got, res.Stderr.Text())
			}
		},
	}
}
