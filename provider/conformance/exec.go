package conformance

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var execPromises = []promise{
	{name: "stdout and stderr are separate", check: func(t *testing.T, c *Case) {
		res := c.Succeed(t, c.Probe("print", "to out\n", probe.Then, "printerr", "to err\n"))
		wantOutput(t, "stdout", res.Stdout, "to out\n")
		wantOutput(t, "stderr", res.Stderr, "to err\n")
	}},
	{name: "exit codes are exact", check: func(t *testing.T, c *Case) {
		// timeout(1) exits with 124 on a timeout, docker and shells with 125 to 127 on failures of their own, and
		// shells with 137 and 143 after signals. Here all of them are the program's own codes.
		for _, code := range []int{0, 1, 2, 3, 42, 124, 125, 126, 127, 128, 137, 143, 254, 255} {
			res := c.Exec(t, c.Probe("exit", strconv.Itoa(code)))
			if res.Outcome != fumehood.Exited || res.ExitCode != code || res.Signal != 0 {
				t.Errorf("exit %d came back as %s, code %d, signal %d", code, res.Outcome, res.ExitCode, res.Signal)
			}
			if res.Success() != (code == 0) {
				t.Errorf("exit %d: Success is %v", code, res.Success())
			}
		}
	}},
	{name: "signals differ from exits", check: func(t *testing.T, c *Case) {
		for _, sig := range []int{15, 9} {
			res := c.Exec(t, c.Probe("print", "before", probe.Then, "raise", strconv.Itoa(sig)))
			if res.Outcome != fumehood.Signaled || res.ExitCode != 128+sig || res.Signal != sig {
				t.Errorf("signal %d came back as %s, code %d, signal %d", sig, res.Outcome, res.ExitCode, res.Signal)
			}
			wantOutput(t, "stdout", res.Stdout, "before")
		}
	}},
	{name: "arguments are exact", check: func(t *testing.T, c *Case) {
		args := []string{"", " ", "$HOME", "`id`", "a'b\"c", "*", "new\nline", "\\", "-n", "--", "é☃\U0001F600", ";&|<>"}
		if got, want := c.Run(t, append([]string{"args"}, args...)...), probe.SumArgs(args); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}},
	{name: "non-UTF-8 arguments and variables are exact", check: func(t *testing.T, c *Case) {
		const bytes = "\xff\xfe"
		if got, want := c.Run(t, "args", bytes), probe.SumArgs([]string{bytes}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		cmd := c.Probe("env", "BYTES")
		cmd.Env = map[string]string{"BYTES": bytes}
		if got := string(c.Succeed(t, cmd).Stdout.Bytes); got != bytes {
			t.Errorf("BYTES is %q, want %q", got, bytes)
		}
	}},
	{name: "arguments may total 1 MiB", check: func(t *testing.T, c *Case) {
		var args []string
		for i := range 16 {
			args = append(args, strings.Repeat(strconv.Itoa(i%10), 64<<10))
		}
		if got, want := c.Run(t, append([]string{"args"}, args...)...), probe.SumArgs(args); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}},
	{name: "environment values are exact", check: func(t *testing.T, c *Case) {
		env := map[string]string{
			"DOLLAR": "$HOME ${PATH} $$ $(id)", "LINES": "one\ntwo\n", "QUOTES": `'"` + "`", "EQUALS": "a=b==c",
			"UNICODE": "é☃\U0001F600", "EMPTY": "", "SPACES": "  a  b  ", "BACKSLASH": `\n\\`,
			"PERCENT": "%s%n", "lower.dot-dash": "odd name",
		}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			cmd := c.Probe("env", name)
			cmd.Env = env
			if got := string(c.Succeed(t, cmd).Stdout.Bytes); got != env[name] {
				t.Errorf("%s is %q, want %q", name, got, env[name])
			}
		}
	}},
	{name: "command variables override the service's", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("env", "PATH")
		cmd.Env = map[string]string{"PATH": "/of/the/command"}
		if got := string(c.Succeed(t, cmd).Stdout.Bytes); got != "/of/the/command" {
			t.Errorf("PATH is %q", got)
		}
	}},
	{name: "variables do not leak to other commands", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("env", "LEFT_OVER")
		cmd.Env = map[string]string{"LEFT_OVER": "yes"}
		c.Succeed(t, cmd)
		if res := c.Exec(t, c.Probe("env", "LEFT_OVER")); res.ExitCode != probe.CodeFailed {
			t.Errorf("the variable is still set: %q", res.Stdout.Bytes)
		}
	}},
	{name: "programs are found in the command's PATH", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("print", "found")
		cmd.Args[0] = path.Base(c.Harness.Probe)
		cmd.Env = map[string]string{"PATH": "/no/such/dir:" + path.Dir(c.Harness.Probe)}
		wantOutput(t, "stdout", c.Succeed(t, cmd).Stdout, "found")
	}},
	{name: "directory may be absolute, relative or empty", check: func(t *testing.T, c *Case) {
		c.Write(t, "sub/file", "")
		for _, d := range []struct{ dir, want string }{
			{c.Path("sub"), c.Path("sub")}, {c.Name + "/sub", c.Path("sub")}, {"", c.Sandbox.ServiceInfo().Dir},
		} {
			cmd := c.Probe("pwd")
			cmd.Dir = d.dir
			if got := string(c.Succeed(t, cmd).Stdout.Bytes); got != d.want {
				t.Errorf("Dir %q: the command ran in %q, want %q", d.dir, got, d.want)
			}
		}
	}},
	{name: "commands run as a named user", check: func(t *testing.T, c *Case) {
		wantID(t, c, c.Harness.Users.Name, c.Harness.Users.UID, c.Harness.Users.GID)
	}},
	{name: "commands run as a numeric user", check: func(t *testing.T, c *Case) {
		wantID(t, c, strconv.Itoa(c.Harness.Users.UID), c.Harness.Users.UID, c.Harness.Users.GID)
	}},
	{name: "commands run as any UID and GID", check: func(t *testing.T, c *Case) {
		wantID(t, c, "4321:8765", 4321, 8765)
	}},
	{name: "32 parallel commands stay separate", alone: true, check: func(t *testing.T, c *Case) {
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				text := strings.Repeat(fmt.Sprintf("command %d\n", i), 10_000)
				cmd := c.Probe("cat", probe.Then, "printerr", strconv.Itoa(i), probe.Then, "exit", strconv.Itoa(i))
				cmd.Stdin = strings.NewReader(text)
				res, err := c.Sandbox.Exec(t.Context(), cmd)
				if err != nil {
					t.Errorf("command %d: %v", i, err)
					return
				}
				if string(res.Stdout.Bytes) != text || string(res.Stderr.Bytes) != strconv.Itoa(i) || res.ExitCode != i {
					t.Errorf("command %d: %d bytes of stdout, stderr %q, code %d", i, res.Stdout.Total, res.Stderr.Bytes, res.ExitCode)
				}
			})
		}
		wg.Wait()
	}},
}

func wantID(t *testing.T, c *Case, user string, uid, gid int) {
	t.Helper()
	if user == "" {
		t.Fatal("the harness has no Users.Name")
	}
	cmd := c.Probe("id")
	cmd.User, cmd.Dir = user, "/"
	want := fmt.Sprintf("%d:%d", uid, gid)
	if got := string(c.Succeed(t, cmd).Stdout.Bytes); got != want {
		t.Errorf("user %q ran as %s, want %s", user, got, want)
	}
}

func wantOutput(t *testing.T, name string, got fumehood.Output, want string) {
	t.Helper()
	if string(got.Bytes) != want || got.Total != int64(len(want)) || got.Truncated() {
		t.Errorf("%s is %.200q, %d bytes in total, want %.200q", name, got.Bytes, got.Total, want)
	}
}
