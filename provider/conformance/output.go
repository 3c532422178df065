package conformance

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var outputPromises = []promise{
	{name: "valid UTF-8 is exact", check: func(t *testing.T, c *Case) {
		const text = "é ☃ \U0001F600 e\u0301 \u202e \ufffd\n"
		res := c.Succeed(t, c.Probe("print", text))
		wantOutput(t, "stdout", res.Stdout, text)
		if res.Stdout.Text() != text {
			t.Errorf("as text: %q", res.Stdout.Text())
		}
	}},
	{name: "invalid UTF-8 is kept and marked in the text", check: func(t *testing.T, c *Case) {
		const raw = "a\xffb\xc3(c\xe2\x98"
		res := c.Succeed(t, c.Probe("hex", hex.EncodeToString([]byte(raw))))
		wantOutput(t, "stdout", res.Stdout, raw)
		if got, want := res.Stdout.Text(), "a\ufffdb\ufffd(c\ufffd"; got != want {
			t.Errorf("as text: %q, want %q", got, want)
		}
	}},
	{name: "cap does not split characters", check: func(t *testing.T, c *Case) {
		const unit = "é☃\U0001F600"                     // 2, 3 and 4 bytes
		for limit := 1; limit <= len(unit)+1; limit++ { // a cut at each byte
			cmd := c.Probe("repeat", "5000", unit)
			cmd.StdoutCap = int64(limit)
			res := c.Succeed(t, cmd)
			if len(res.Stdout.Bytes) != limit {
				t.Errorf("cap %d: kept %d bytes", limit, len(res.Stdout.Bytes))
			}
			text := res.Stdout.Text()
			if !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) || !strings.HasSuffix(strings.Repeat(unit, 3), text) {
				t.Errorf("cap %d: %q", limit, text)
			}
		}
	}},
	{name: "50 MiB within the cap are complete", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("flood", strconv.Itoa(big))
		cmd.StdoutCap = big
		res := c.Succeed(t, cmd)
		if res.Stdout.Total != big || res.Stdout.Truncated() || !bytes.Equal(res.Stdout.Bytes, bigPattern()) {
			t.Errorf("got %d bytes of %d, not the pattern", len(res.Stdout.Bytes), res.Stdout.Total)
		}
	}},
	{name: "output over the cap keeps its end and total", check: func(t *testing.T, c *Case) {
		const total, limit = 1_000_003, 1000
		cmd := c.Probe("flood", strconv.Itoa(total), probe.Then, "printerr", "0123456789")
		cmd.StdoutCap, cmd.StderrCap = limit, 4
		res := c.Succeed(t, cmd)
		if res.Stdout.Total != total || !res.Stdout.Truncated() || !bytes.Equal(res.Stdout.Bytes, probe.Pattern(total-limit, limit)) {
			t.Errorf("stdout: %d bytes of %d: %.40q", len(res.Stdout.Bytes), res.Stdout.Total, res.Stdout.Bytes)
		}
		if res.Stderr.Total != 10 || string(res.Stderr.Bytes) != "6789" {
			t.Errorf("stderr: %q of %d", res.Stderr.Bytes, res.Stderr.Total)
		}
	}},
	{name: "default cap is 10 MiB", check: func(t *testing.T, c *Case) {
		const total = fumehood.DefaultOutputCap + 5
		res := c.Succeed(t, c.Probe("flood", strconv.Itoa(total)))
		if res.Stdout.Total != total || len(res.Stdout.Bytes) != fumehood.DefaultOutputCap {
			t.Errorf("%d bytes of %d", len(res.Stdout.Bytes), res.Stdout.Total)
		}
	}},
	{name: "KeepNone still counts output", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("flood", "1000003")
		cmd.StdoutCap = fumehood.KeepNone
		res := c.Succeed(t, cmd)
		if res.Stdout.Total != 1_000_003 || len(res.Stdout.Bytes) != 0 || !res.Stdout.Truncated() {
			t.Errorf("%d bytes of %d", len(res.Stdout.Bytes), res.Stdout.Total)
		}
	}},
	{name: "events deliver all bytes, then the result", check: func(t *testing.T, c *Case) {
		const total = 3<<20 + 7
		var got bytes.Buffer
		var last *fumehood.Result
		for ev, err := range c.Sandbox.Stream(t.Context(), c.Probe("flood", strconv.Itoa(total), probe.Then, "exit", "3")) {
			switch {
			case err != nil:
				t.Fatal(err)
			case last != nil:
				t.Fatal("an event came after the one with the result")
			case ev.Result != nil:
				last = ev.Result
			case ev.Stream != fumehood.Stdout || len(ev.Data) == 0 || ev.Skipped != 0:
				t.Fatalf("got an event of %v with %d bytes, %d skipped", ev.Stream, len(ev.Data), ev.Skipped)
			default:
				got.Write(ev.Data)
			}
		}
		if !bytes.Equal(got.Bytes(), probe.Pattern(0, total)) {
			t.Errorf("got %d bytes, not the pattern", got.Len())
		}
		if last == nil || last.ExitCode != 3 || last.Stdout.Total != total {
			t.Errorf("the last event has the result %+v", last)
		}
	}},
	{name: "writers get all output as it arrives", check: func(t *testing.T, c *Case) {
		const lines = 1000
		var out, errs strings.Builder
		begun := make(chan error, 1)
		cmd := c.Probe("print", "begun\n", probe.Then, "wait", c.Path("go"), probe.Then, "talk", strconv.Itoa(lines))
		cmd.StdoutCap, cmd.Stderr = fumehood.KeepNone, &errs
		cmd.Stdout = writerFunc(func(p []byte) (int, error) {
			if out.Len() == 0 {
				go func() { begun <- c.Sandbox.WriteFile(t.Context(), c.Path("go"), nil, fumehood.WriteOptions{}) }()
			}
			return out.Write(p)
		})
		res := c.Succeed(t, cmd)
		if err := <-begun; err != nil {
			t.Error(err)
		}
		want := [3]strings.Builder{}
		want[fumehood.Stdout].WriteString("begun\n")
		for i := range lines {
			fmt.Fprintf(&want[fumehood.Stdout], "out %d\n", i)
			fmt.Fprintf(&want[fumehood.Stderr], "err %d\n", i)
		}
		if got := out.String(); got != want[fumehood.Stdout].String() || res.Stdout.Total != int64(len(got)) || len(res.Stdout.Bytes) > 0 {
			t.Errorf("got %d bytes of standard output, %.100q; of %d bytes, the result has %q", len(got), got, res.Stdout.Total, res.Stdout.Bytes)
		}
		if errs.String() != want[fumehood.Stderr].String() {
			t.Errorf("got %d bytes of standard error, %.100q", errs.Len(), errs.String())
		}
		wantOutput(t, "stderr", res.Stderr, errs.String())
	}},
	{name: "writer error ends the command", check: func(t *testing.T, c *Case) {
		full := errors.New("the disk is full")
		cmd := c.Probe("print", "x", probe.Then, "wait", c.Path("never"))
		cmd.Stdout = writerFunc(func([]byte) (int, error) { return 0, full })
		soon(t, "the command ends", func() {
			res, err := c.Sandbox.Exec(t.Context(), cmd)
			if !errors.Is(err, fumehood.ErrConfig) || !errors.Is(err, full) || res != nil {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}},
	{name: "events separate stdout and stderr", check: func(t *testing.T, c *Case) {
		const lines = 1000
		var got [3]strings.Builder
		for ev, err := range c.Sandbox.Stream(t.Context(), c.Probe("talk", strconv.Itoa(lines))) {
			if err != nil {
				t.Fatal(err)
			}
			got[ev.Stream].Write(ev.Data)
		}
		for s, word := range map[fumehood.Stream]string{fumehood.Stdout: "out", fumehood.Stderr: "err"} {
			var want strings.Builder
			for i := range lines {
				want.WriteString(word + " " + strconv.Itoa(i) + "\n")
			}
			if got[s].String() != want.String() {
				t.Errorf("%v: got %d bytes, %.100q", s, got[s].Len(), got[s].String())
			}
		}
	}},
	{name: "late events report skipped bytes", check: func(t *testing.T, c *Case) {
		const total = 3<<20 + 7
		p := c.Start(t, c.Probe("flood", strconv.Itoa(total), probe.Then,
			"append", c.Path("flooded"), "x", probe.Then, "wait", c.Path("go")))
		c.Exists(t, "flooded")
		c.Write(t, "go", "")
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		off, skipped := int64(0), int64(0)
		for ev, err := range p.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if off > 0 && ev.Skipped > 0 {
				t.Errorf("skipped %d bytes after the first event was read", ev.Skipped)
			}
			skipped += ev.Skipped
			off += ev.Skipped
			if !bytes.Equal(ev.Data, probe.Pattern(off, int64(len(ev.Data)))) {
				t.Fatalf("the event at offset %d is not the pattern", off)
			}
			off += int64(len(ev.Data))
		}
		if off != total || skipped == 0 {
			t.Errorf("got %d bytes of %d, %d of them skipped", off, total, skipped)
		}
	}},
	{name: "slow readers get all if a child holds stdout", check: func(t *testing.T, c *Case) {
		// More than the buffers on the way hold, but so little that the program ends before it is all read.
		const total = 1<<20 + 160<<10
		var got bytes.Buffer
		cmd := c.Probe("daemon", c.Path("daemon"), "hold", probe.Then, "flood", strconv.Itoa(total))
		for ev, err := range c.Sandbox.Stream(t.Context(), cmd) {
			if err != nil {
				t.Fatal(err)
			}
			if got.Len() == 0 {
				c.Alive(t, "daemon") // takes so long that a provider could give up on the output
			}
			got.Write(ev.Data)
		}
		c.Stop(t, "daemon")
		if !bytes.Equal(got.Bytes(), probe.Pattern(0, total)) {
			t.Errorf("got %d bytes of %d, or not the pattern", got.Len(), total)
		}
	}},
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
