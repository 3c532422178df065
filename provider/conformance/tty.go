package conformance

import (
	"strings"
	"testing"

	"github.com/fumehood/fumehood/test/probe"
)

var ttyPromises = []promise{
	{name: "no terminal by default", check: func(t *testing.T, c *Case) {
		if got := c.Run(t, "tty"); got != "no tty" {
			t.Errorf("got %q", got)
		}
	}},
	{name: "terminal has the given size and one stream", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("tty", probe.Then, "printerr", "to err")
		cmd.TTY, cmd.Rows, cmd.Cols = true, 31, 117
		res := c.Succeed(t, cmd)
		if got := res.Stdout.Text(); got != "tty 31 117\r\nto err" || res.Stderr.Total != 0 {
			t.Errorf("stdout %q, stderr %q", got, res.Stderr.Text())
		}
	}},
	{name: "default size is 24 by 80", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("tty")
		cmd.TTY = true
		if got := c.Succeed(t, cmd).Stdout.Text(); got != "tty 24 80\r\n" {
			t.Errorf("got %q", got)
		}
	}},
	{name: "TERM is set unless the environment has it", check: func(t *testing.T, c *Case) {
		for _, d := range []struct{ own, kind, want string }{{"", "", "xterm"}, {"", "screen-256color", "screen-256color"}, {"vt100", "screen", "vt100"}} {
			cmd := c.Probe("env", "TERM")
			cmd.TTY, cmd.Term = true, d.kind
			if d.own != "" {
				cmd.Env = map[string]string{"TERM": d.own}
			}
			if got := strings.TrimSpace(c.Succeed(t, cmd).Stdout.Text()); got != d.want || d.own == "" && cmd.Env != nil {
				t.Errorf("of type %q, TERM=%q: got %q, want %q", d.kind, d.own, got, d.want)
			}
		}
	}},
	{name: "running terminal can be resized", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("append", c.Path("running"), "x", probe.Then, "tty", "50", "200")
		cmd.TTY = true
		p := c.Start(t, cmd)
		c.Exists(t, "running")
		if err := p.Resize(t.Context(), 50, 200); err != nil {
			t.Fatal(err)
		}
		res, err := p.Wait(t.Context())
		if err != nil || !res.Success() || !strings.Contains(res.Stdout.Text(), "tty 50 200") {
			t.Errorf("got %+v, %v", res, err)
		}
	}},
	{name: "terminal accepts typed input", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("cat")
		cmd.TTY, cmd.StdinPipe = true, true
		p := c.Start(t, cmd)
		if _, err := p.Write([]byte("typed\n\x04")); err != nil { // ctrl-D ends the input
			t.Fatal(err)
		}
		res, err := p.Wait(t.Context())
		if err != nil || !res.Success() || !strings.HasSuffix(res.Stdout.Text(), "typed\r\n") {
			t.Errorf("got %+v, %v", res, err)
		}
	}},
	{name: "end of input works after a partial line", check: func(t *testing.T, c *Case) {
		for _, typed := range []string{"", "typed\n", "typed"} {
			cmd := c.Probe("cat")
			cmd.TTY, cmd.Stdin, cmd.Timeout = true, strings.NewReader(typed), within
			if got := c.Succeed(t, cmd).Stdout.Text(); !strings.HasSuffix(got, strings.ReplaceAll(typed, "\n", "\r\n")) {
				t.Errorf("after typing %q, got %q", typed, got)
			}
		}
	}},
}
