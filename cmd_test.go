package fumehood

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCmd_Validate(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Cmd)
		says  string // part of the error; empty if valid
	}{
		"nothing":               {func(*Cmd) {}, ""},
		"an empty argument":     {func(c *Cmd) { c.Args = append(c.Args, "") }, ""},
		"an odd variable":       {func(c *Cmd) { c.Env = map[string]string{"a.b-c d": "x=y\n"} }, ""},
		"keeping nothing":       {func(c *Cmd) { c.StdoutCap, c.StderrCap = KeepNone, KeepNone }, ""},
		"a terminal's size":     {func(c *Cmd) { c.TTY, c.Rows, c.Cols = true, 1, 1 }, ""},
		"no arguments":          {func(c *Cmd) { c.Args = nil }, "empty"},
		"no program":            {func(c *Cmd) { c.Args = []string{"", "x"} }, "empty"},
		"NUL in an argument":    {func(c *Cmd) { c.Args = append(c.Args, "a\x00") }, "argument 1"},
		"a nameless variable":   {func(c *Cmd) { c.Env = map[string]string{"": "x"} }, "no name"},
		"'=' in a name":         {func(c *Cmd) { c.Env = map[string]string{"A=B": "x"} }, `"A=B"`},
		"NUL in a name":         {func(c *Cmd) { c.Env = map[string]string{"A\x00": "x"} }, "NUL"},
		"NUL in a value":        {func(c *Cmd) { c.Env = map[string]string{"A": "secret\x00"} }, "variable A"},
		"NUL in the directory":  {func(c *Cmd) { c.Dir = "a\x00" }, "directory"},
		"NUL in the user":       {func(c *Cmd) { c.User = "a\x00" }, "user"},
		"a negative limit":      {func(c *Cmd) { c.Timeout = -1 }, "negative"},
		"a negative stdout cap": {func(c *Cmd) { c.StdoutCap = -2 }, "negative"},
		"a negative stderr cap": {func(c *Cmd) { c.StderrCap = -2 }, "negative"},
		"a negative rlimit":     {func(c *Cmd) { c.Rlimits.OpenFiles = -1 }, "negative"},
		"a part of a second":    {func(c *Cmd) { c.Rlimits.CPU = 1500 * time.Millisecond }, "1.5s"},
		"limits":                {func(c *Cmd) { c.Rlimits = Rlimits{time.Minute, 1, 1, 1} }, ""},
		"two inputs":            {func(c *Cmd) { c.Stdin, c.StdinPipe = strings.NewReader(""), true }, "exclude"},
		"rows without terminal": {func(c *Cmd) { c.Rows = 1 }, "TTY"},
		"cols without terminal": {func(c *Cmd) { c.Cols = 1 }, "TTY"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := Cmd{Args: []string{"true"}}
			c.spoil(&cmd)
			err := cmd.Validate()
			switch {
			case c.says == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case c.says != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, want an ErrConfig with %q", err, c.says)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the message quotes a value: %v", err)
			}
		})
	}
}

func TestCmd_Validate_term(t *testing.T) {
	for name, c := range map[string]struct {
		cmd   Cmd
		valid bool
	}{
		"of a terminal":    {Cmd{TTY: true, Term: "vt100"}, true},
		"without terminal": {Cmd{Term: "vt100"}, false},
		"NUL":              {Cmd{TTY: true, Term: "vt100\x00"}, false},
	} {
		c.cmd.Args = []string{"true"}
		if err := c.cmd.Validate(); (err == nil) != c.valid || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
