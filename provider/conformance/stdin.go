package conformance

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

// big is the amount of data that the promises about large data move, in bytes.
const big = 50 << 20

// bigPattern returns big bytes of the pattern. Callers share the slice and must not write to it: generating it for each
// promise would be slow.
var bigPattern = sync.OnceValue(func() []byte { return probe.Pattern(0, big) })

var stdinPromises = []promise{
	{name: "stdin is exact", check: func(t *testing.T, c *Case) {
		everyByte := make([]byte, 256)
		for i := range everyByte {
			everyByte[i] = byte(i)
		}
		for name, data := range map[string]string{
			"text": "one\ntwo\n", "shell": "$(id) `id` ; rm -rf \"$X\" 'y' \\ & | > <\nEOF\n", "binary": string(everyByte),
			"empty": "", "no newline": "end", "control": "\x03\x04\x1a\x7f",
		} {
			cmd := c.Probe("cat")
			cmd.Stdin = strings.NewReader(data)
			if got := string(c.Succeed(t, cmd).Stdout.Bytes); got != data {
				t.Errorf("%s: got %q, want %q", name, got, data)
			}
		}
	}},
	{name: "stdin is empty by default", check: func(t *testing.T, c *Case) {
		if got, want := c.Run(t, "sum"), probe.Sum(nil); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}},
	{name: "stdin may be 50 MiB", check: func(t *testing.T, c *Case) {
		data := bigPattern()
		cmd := c.Probe("sum")
		cmd.Stdin = bytes.NewReader(data)
		if got, want := string(c.Succeed(t, cmd).Stdout.Bytes), probe.Sum(data); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}},
	{name: "unread stdin does not delay the end", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("sleep", "200ms", probe.Then, "exit", "7")
		cmd.Stdin = bytes.NewReader(bigPattern())
		soon(t, "the command ends", func() {
			res, err := c.Sandbox.Exec(t.Context(), cmd)
			if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != 7 {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}},
	{name: "running programs accept writes", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("cat")
		cmd.StdinPipe = true
		p := c.Start(t, cmd)
		var got strings.Builder
		lines := []string{"first\n", "second\n", "third\n"}
		if _, err := io.WriteString(p, lines[0]); err != nil {
			t.Fatal(err)
		}
		next := 1
		for ev, err := range p.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Result != nil {
				if !ev.Result.Success() {
					t.Errorf("got %+v", ev.Result)
				}
				break
			}
			got.Write(ev.Data)
			if got.String() != strings.Join(lines[:next], "") {
				continue // the rest of the answer is still to come
			}
			if next == len(lines) {
				err = p.CloseStdin()
			} else {
				_, err = io.WriteString(p, lines[next])
				next++
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got.String() != strings.Join(lines, "") {
			t.Errorf("got %q", got.String())
		}
	}},
	{name: "write after the end is an error", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("exit", "0")
		cmd.StdinPipe = true
		p := c.Start(t, cmd)
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := io.WriteString(p, "too late")
		WantError(t, err, fumehood.ErrUnavailable)
	}},
	{name: "write without StdinPipe is ErrConfig", check: func(t *testing.T, c *Case) {
		p := c.Start(t, c.Probe("sleep", "1m"))
		_, err := io.WriteString(p, "x")
		WantError(t, err, fumehood.ErrConfig)
		WantError(t, p.CloseStdin(), fumehood.ErrConfig)
	}},
	{name: "reader error ends the command and is returned", check: func(t *testing.T, c *Case) {
		broken := errors.New("the disk is gone")
		cmd := c.Probe("cat", probe.Then, "append", c.Path("ran"), "x")
		cmd.Stdin = io.MultiReader(strings.NewReader("some"), failing{broken})
		_, err := c.Sandbox.Exec(t.Context(), cmd)
		WantError(t, err, fumehood.ErrConfig, broken)
		wantNotRun(t, c)
	}},
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
