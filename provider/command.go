package provider

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
)

// Environ returns a command's Env as sorted NAME=value strings.
func Environ(c *fumehood.Cmd) []string {
	env := make([]string, 0, len(c.Env))
	for k, v := range c.Env {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env
}

// SetTerm sets the variable TERM of a command with a terminal, unless its environment or that of its service sets it.
func SetTerm(c *fumehood.Cmd, serviceSets bool) {
	if _, set := c.Env["TERM"]; !c.TTY || set || serviceSets {
		return
	}
	env := map[string]string{"TERM": cmp.Or(c.Term, "xterm")}
	maps.Copy(env, c.Env)
	c.Env = env
}

// KillAfter returns a command's Grace with its default resolved; 0 means no grace period.
func KillAfter(c *fumehood.Cmd) time.Duration {
	switch c.Grace {
	case 0:
		return fumehood.DefaultGrace
	case fumehood.NoGrace:
		return 0
	}
	return c.Grace
}

// OutputCap returns a command's output cap for a stream in bytes, with its default resolved.
func OutputCap(c *fumehood.Cmd, s fumehood.Stream) int64 {
	n := c.StdoutCap
	if s == fumehood.Stderr {
		n = c.StderrCap
	}
	switch n {
	case 0:
		return fumehood.DefaultOutputCap
	case fumehood.KeepNone:
		return 0
	}
	return n
}
