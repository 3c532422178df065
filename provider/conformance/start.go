package conformance

import (
	"context"
	"errors"
	"path"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

var startPromises = []promise{
	{name: "missing program is an error", check: func(t *testing.T, c *Case) {
		for _, program := range []string{"no-such-program", "/no/such/program", c.Path("none"), "./none"} {
			cmd := c.Probe()
			cmd.Args = []string{program}
			wantRefused(t, c, cmd, fumehood.ErrProgramNotFound, fumehood.ErrNotStarted)
		}
	}},
	{name: "non-executable file is an error", check: func(t *testing.T, c *Case) {
		c.Write(t, "text", "just text\n")
		for _, program := range []string{c.Path("text"), "./text", c.Dir} {
			cmd := c.Probe()
			cmd.Args = []string{program}
			wantRefused(t, c, cmd, fumehood.ErrNotExecutable, fumehood.ErrNotStarted)
		}
	}},
	{name: "file in PATH without exec permission is found", check: func(t *testing.T, c *Case) {
		here := path.Base(c.Harness.Probe)
		c.Write(t, here, "just text\n")
		c.Write(t, "sub/file", "")
		cmd := c.Probe("print", "ran")
		cmd.Args[0] = here
		for _, search := range []string{c.Dir, "/no/such/dir:" + c.Dir + ":" + c.Path("sub"), c.Path("sub") + "::", ""} {
			cmd.Env = map[string]string{"PATH": search}
			wantRefused(t, c, cmd, fumehood.ErrNotExecutable, fumehood.ErrNotStarted)
		}
		cmd.Env = map[string]string{"PATH": c.Path("sub") + ":/no/such/dir"}
		wantRefused(t, c, cmd, fumehood.ErrProgramNotFound, fumehood.ErrNotStarted)
		cmd.Env = map[string]string{"PATH": c.Dir + ":" + path.Dir(c.Harness.Probe)}
		wantOutput(t, "stdout", c.Succeed(t, cmd).Stdout, "ran")
	}},
	{name: "invalid executable is an error", check: func(t *testing.T, c *Case) {
		opts := fumehood.WriteOptions{Mode: 0o755}
		if err := c.Sandbox.WriteFile(t.Context(), c.Path("text"), []byte("just text\n"), opts); err != nil {
			t.Fatal(err)
		}
		cmd := c.Probe()
		cmd.Args = []string{c.Path("text")}
		wantRefused(t, c, cmd, fumehood.ErrNotExecutable, fumehood.ErrNotStarted)
	}},
	{name: "missing working directory is an error", check: func(t *testing.T, c *Case) {
		c.Write(t, "file", "")
		for _, dir := range []string{c.Path("none"), c.Name + "/none", c.Path("file")} {
			cmd := c.Probe("append", c.Path("ran"), "x")
			cmd.Dir = dir
			wantRefused(t, c, cmd, fumehood.ErrDirNotFound, fumehood.ErrNotStarted)
		}
	}},
	{name: "unknown user is an error", check: func(t *testing.T, c *Case) {
		for _, user := range append(outOfRange(), c.Harness.Users.Unknown) {
			cmd := c.Probe("append", c.Path("ran"), "x")
			cmd.User = user
			wantRefused(t, c, cmd, fumehood.ErrUserNotFound, fumehood.ErrNotStarted)
		}
	}},
	{name: "canceled context starts nothing", check: func(t *testing.T, c *Case) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Sandbox.Exec(ctx, c.Probe("append", c.Path("ran"), "x"))
		WantError(t, err, fumehood.ErrCanceled)
		_, err = c.Sandbox.Start(ctx, c.Probe("append", c.Path("ran"), "x"))
		WantError(t, err, fumehood.ErrCanceled)
		for _, err := range c.Sandbox.Stream(ctx, c.Probe("append", c.Path("ran"), "x")) {
			WantError(t, err, fumehood.ErrCanceled)
		}
		wantNotRun(t, c)
	}},
	{name: "invalid command is ErrConfig", check: func(t *testing.T, c *Case) {
		for name, spoil := range map[string]func(*fumehood.Cmd){
			"no arguments":            func(cmd *fumehood.Cmd) { cmd.Args = nil },
			"an empty program":        func(cmd *fumehood.Cmd) { cmd.Args[0] = "" },
			"NUL in an argument":      func(cmd *fumehood.Cmd) { cmd.Args[2] += "\x00" },
			"'=' in a variable":       func(cmd *fumehood.Cmd) { cmd.Env = map[string]string{"A=B": "c"} },
			"NUL in a value":          func(cmd *fumehood.Cmd) { cmd.Env = map[string]string{"A": "b\x00"} },
			"a nameless variable":     func(cmd *fumehood.Cmd) { cmd.Env = map[string]string{"": "b"} },
			"NUL in the directory":    func(cmd *fumehood.Cmd) { cmd.Dir += "\x00" },
			"NUL in the user":         func(cmd *fumehood.Cmd) { cmd.User = "\x00" },
			"a negative limit":        func(cmd *fumehood.Cmd) { cmd.Timeout = -1 },
			"a negative rlimit":       func(cmd *fumehood.Cmd) { cmd.Rlimits.Processes = -1 },
			"half a second of CPU":    func(cmd *fumehood.Cmd) { cmd.Rlimits.CPU = time.Second / 2 },
			"a negative cap":          func(cmd *fumehood.Cmd) { cmd.StdoutCap = -2 },
			"a size without terminal": func(cmd *fumehood.Cmd) { cmd.Rows = 3 },
			"StdinPipe with Exec":     func(cmd *fumehood.Cmd) { cmd.StdinPipe = true },
		} {
			cmd := c.Probe("append", c.Path("ran"), "x")
			spoil(&cmd)
			if _, err := c.Sandbox.Exec(t.Context(), cmd); !errors.Is(fumehood.ClassOf(err), fumehood.ErrConfig) {
				t.Errorf("%s: got %v, want ErrConfig", name, err)
			}
		}
		wantNotRun(t, c)
	}},
}

// wantRefused checks that cmd fails to start with both Exec and Start, and that it did not create the file "ran".
func wantRefused(t *testing.T, c *Case, cmd fumehood.Cmd, classes ...error) {
	t.Helper()
	_, err := c.Sandbox.Exec(t.Context(), cmd)
	WantError(t, err, classes...)
	_, err = c.Sandbox.Start(t.Context(), cmd)
	WantError(t, err, classes...)
	wantNotRun(t, c)
}

func wantNotRun(t *testing.T, c *Case) {
	t.Helper()
	if c.size(t, c.Path("ran")) >= 0 {
		t.Error("the command ran")
	}
}

// Refuses returns the check of an Exception, for a provider that does not support what cmd asks for. The check expects
// an ErrUnsupported with a hint or cause, and that nothing runs. If cmd has an effect, it must be to create the file
// "ran" in the promise's directory.
func Refuses(cmd func(c *Case) fumehood.Cmd) func(t *testing.T, c *Case) {
	return func(t *testing.T, c *Case) {
		t.Helper()
		wantRefused(t, c, cmd(c), fumehood.ErrUnsupported)
	}
}

// WantEntered checks that commands start in the service's directory, which their users may not enter, and in /tmp.
func WantEntered(t *testing.T, sb fumehood.Sandbox, dir string) {
	t.Helper()
	for range 2 { // a process that has started one command starts the next
		for in, want := range map[string]string{"": dir, dir + "/": dir, "/tmp": "/tmp"} {
			for _, user := range []string{"", "1001"} {
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"pwd", "-P"}, Dir: in, User: user})
				if err != nil || res.Stdout.Text() != want+"\n" {
					t.Errorf("directory %q, user %q: got %+v, %v, want %s", in, user, res, err, want)
				}
				if res, err = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"ls"}, Dir: in, User: user}); err != nil || res.Success() != (want == "/tmp") {
					t.Errorf("list %q as user %q: got %+v, %v", in, user, res, err)
				}
			}
		}
	}
}
