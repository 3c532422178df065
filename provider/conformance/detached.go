package conformance

import (
	"bytes"
	"context"
	"io"
	"iter"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

var detachedPromises = []promise{
	{name: "command outlives its context", check: func(t *testing.T, c *Case) {
		ctx, cancel := context.WithCancel(t.Context())
		p := c.detach(ctx, t, c.Probe("beat", c.Path("beat"), probe.Then, "exit", "3"))
		c.Exists(t, "beat")
		cancel()
		c.Alive(t, "beat")
		c.Stop(t, "beat")
		wantCode(t, p, 3)
	}},
	{name: "commands are listed by ID until forgotten", check: func(t *testing.T, c *Case) {
		running := c.detach(t.Context(), t, c.Probe("wait", c.Path("go")))
		ended := c.detach(t.Context(), t, c.Probe("exit", "0"))
		wantCode(t, ended, 0)
		plain := c.Start(t, c.Probe("exit", "0"))
		for p, over := range map[fumehood.Process]bool{running: false, ended: true} {
			info := p.Info()
			if info.ID == 0 || info.Ended != over || info.Args[0] != c.Harness.Probe || info.Started.IsZero() {
				t.Errorf("got %+v", info)
			}
			if found, err := c.Sandbox.Process(info.ID); err != nil || found != p || !slices.Contains(c.Sandbox.Processes(), p) {
				t.Errorf("command %d is not on the list: %v", info.ID, err)
			}
		}
		if running.Info().ID >= ended.Info().ID || plain.Info().ID != 0 || slices.Contains(c.Sandbox.Processes(), plain) {
			t.Errorf("numbers %d, %d and %d", running.Info().ID, ended.Info().ID, plain.Info().ID)
		}
		WantError(t, running.Forget(t.Context()), fumehood.ErrConfig)
		for range 2 {
			if err := ended.Forget(t.Context()); err != nil {
				t.Error(err)
			}
		}
		_, err := c.Sandbox.Process(ended.Info().ID)
		WantError(t, err, fumehood.ErrConfig)
		if all := c.Sandbox.Processes(); slices.Contains(all, ended) || !slices.Contains(all, running) {
			t.Error("Forget removed the wrong command")
		}
		c.Write(t, "go", "")
		wantCode(t, running, 0)
	}},
	{name: "output and result remain after the end", check: func(t *testing.T, c *Case) {
		id := c.detach(t.Context(), t, c.Probe("print", "said", probe.Then, "printerr", "warned", probe.Then, "exit", "9")).Info().ID
		Eventually(t, "the command ends", func() bool {
			p, err := c.Sandbox.Process(id)
			return err == nil && p.Info().Ended
		})
		p, err := c.Sandbox.Process(id)
		if err != nil {
			t.Fatal(err)
		}
		wantOutput(t, "stdout", wantCode(t, p, 9).Stdout, "said")
		if got := string(follow(t, p, fumehood.Stderr, 0)); got != "warned" {
			t.Errorf("stderr is %q", got)
		}
	}},
	{name: "follow reads any offset, also after the end", check: func(t *testing.T, c *Case) {
		const first, all = 100_000, 200_000
		for kind, start := range map[string]func(fumehood.Cmd) fumehood.Process{
			"detached": func(cmd fumehood.Cmd) fumehood.Process { return c.detach(t.Context(), t, cmd) },
			"started":  func(cmd fumehood.Cmd) fumehood.Process { return c.Start(t, cmd) },
		} {
			p := start(c.Probe("flood", strconv.Itoa(first), probe.Then, "wait", c.Path("go-"+kind), probe.Then, "flood", strconv.Itoa(all-first)))
			var got []byte
			for chunk, err := range p.Follow(t.Context(), fumehood.Stdout, 0) {
				if err != nil || chunk.Offset != int64(len(got)) {
					t.Fatalf("%s: at offset %d, %v", kind, chunk.Offset, err)
				}
				if got = append(got, chunk.Data...); len(got) == first {
					c.Write(t, "go-"+kind, "")
				}
			}
			want := slices.Concat(probe.Pattern(0, first), probe.Pattern(0, all-first))
			if !bytes.Equal(got, want) {
				t.Errorf("%s: got %d bytes that are not the pattern", kind, len(got))
			}
			for _, offset := range []int64{0, 1, first - 1, first, all - 1, all, all + 1} {
				if got := follow(t, p, fumehood.Stdout, offset); !bytes.Equal(got, want[min(offset, all):]) {
					t.Errorf("%s: from offset %d: got %d bytes, which differ from the output", kind, offset, len(got))
				}
			}
		}
	}},
	{name: "follow waits for a later offset", check: func(t *testing.T, c *Case) {
		p := c.detach(t.Context(), t, c.Probe("print", "01234", probe.Then, "wait", c.Path("go"), probe.Then, "print", "56789"))
		awaitOutput(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantRefusal(t, p.Follow(ctx, fumehood.Stdout, 7), fumehood.ErrCanceled)
		got := make(chan []byte, 1)
		go func() { got <- follow(t, p, fumehood.Stdout, 7) }()
		c.Write(t, "go", "")
		if b := <-got; string(b) != "789" {
			t.Errorf("got %q", b)
		}
	}},
	{name: "follow reports discarded output", check: func(t *testing.T, c *Case) {
		const total, limit = 1_000_003, 1000
		cmd := c.Probe("flood", strconv.Itoa(total), probe.Then, "printerr", "unheld")
		cmd.StdoutCap, cmd.StderrCap = limit, fumehood.KeepNone
		p := c.detach(t.Context(), t, cmd)
		wantCode(t, p, 0)
		for _, offset := range []int64{0, 5, total - limit - 1, total - limit, total - 3} {
			at := max(offset, total-limit)
			for chunk, err := range p.Follow(t.Context(), fumehood.Stdout, offset) {
				if err != nil || chunk.Offset != at || !bytes.Equal(chunk.Data, probe.Pattern(at, total-at)) {
					t.Errorf("from offset %d: got %d bytes at %d, %v", offset, len(chunk.Data), chunk.Offset, err)
				}
				at += int64(len(chunk.Data))
			}
			if at != total {
				t.Errorf("from offset %d: the stream ends at %d", offset, at)
			}
		}
		var chunks []fumehood.Chunk
		for chunk, err := range p.Follow(t.Context(), fumehood.Stderr, 0) {
			if err != nil {
				t.Fatal(err)
			}
			chunks = append(chunks, chunk)
		}
		if len(chunks) != 1 || chunks[0].Offset != 6 || len(chunks[0].Data) != 0 {
			t.Errorf("got chunks of output that is not kept: %+v", chunks)
		}
	}},
	{name: "many can follow and wait at once", check: func(t *testing.T, c *Case) {
		const total = 1 << 20
		p := c.detach(t.Context(), t, c.Probe("wait", c.Path("go"), probe.Then, "flood", strconv.Itoa(total), probe.Then, "exit", "6"))
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				offset := int64(i) * total / 16
				if got := follow(t, p, fumehood.Stdout, offset); !bytes.Equal(got, probe.Pattern(offset, total-offset)) {
					t.Errorf("from offset %d: got %d bytes, which differ from the output", offset, len(got))
				}
			})
			wg.Go(func() {
				if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != 6 {
					t.Errorf("got %+v, %v", res, err)
				}
			})
		}
		c.Write(t, "go", "")
		wg.Wait()
	}},
	{name: "slow follow does not block program or readers", check: func(t *testing.T, c *Case) {
		const total, limit = 4 << 20, 100_000
		cmd := c.Probe("print", "x", probe.Then, "wait", c.Path("go"), probe.Then, "flood", strconv.Itoa(total))
		cmd.StdoutCap = limit
		p := c.detach(t.Context(), t, cmd)
		at, skipped := int64(0), int64(0)
		for chunk, err := range p.Follow(t.Context(), fumehood.Stdout, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if at == 0 { // block this loop until the command has ended
				c.Write(t, "go", "")
				if got := wantCode(t, p, 0).Stdout.Total; got != total+1 {
					t.Fatalf("the program wrote %d bytes", got)
				}
				if got := follow(t, p, fumehood.Stdout, 1+total-limit); !bytes.Equal(got, probe.Pattern(total-limit, limit)) {
					t.Errorf("another reader got %d bytes, which differ from the output", len(got))
				}
			} else if !bytes.Equal(chunk.Data, probe.Pattern(chunk.Offset-1, int64(len(chunk.Data)))) {
				t.Fatalf("the chunk at offset %d is not the pattern", chunk.Offset)
			}
			skipped += chunk.Offset - at
			at = chunk.Offset + int64(len(chunk.Data))
		}
		if at != total+1 || skipped != total-limit {
			t.Errorf("the stream ends at %d, with %d bytes skipped", at, skipped)
		}
	}},
	{name: "many can write until stdin is closed", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("sum")
		cmd.StdinPipe = true
		ctx, cancel := context.WithCancel(t.Context())
		p := c.detach(ctx, t, cmd)
		cancel()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if _, err := io.WriteString(p, "0123456789"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := p.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		wantOutput(t, "stdout", wantCode(t, p, 0).Stdout, probe.Sum(bytes.Repeat([]byte("0123456789"), 16)))
	}},
	{name: "signals can be handled", check: func(t *testing.T, c *Case) {
		p := c.detach(t.Context(), t, c.Probe("trap", "15", "caught"))
		awaitOutput(t, p)
		if err := p.Signal(t.Context(), 15); err != nil {
			t.Fatal(err)
		}
		wantOutput(t, "stdout", wantCode(t, p, 0).Stdout, "ready\ncaught")
	}},
	{name: "kill ends all descendants, nothing else", check: func(t *testing.T, c *Case) {
		n := c.neighbors(t)
		p := c.detach(t.Context(), t, c.Probe("tree", c.Path("tree"), probe.Then, "beat", c.Path("tree.leader")))
		c.Exists(t, "tree.leader")
		if res := kill(t, p); res.Leaked {
			t.Error("the result has Leaked set")
		}
		c.AwaitEnd(t, n.clock, append(probe.TreeFiles("tree"), "tree.leader")...)
		n.intact(t, c)
	}},
	{name: "timeout applies", check: func(t *testing.T, c *Case) {
		for wall := time.Second; ; wall *= 3 { // try a longer limit if a slow machine printed nothing in time
			cmd := c.Probe("print", "partial", probe.Then, "wait", c.Path("go"))
			cmd.Timeout = wall
			p := c.detach(t.Context(), t, cmd)
			var res *fumehood.Result
			soon(t, "the command times out", func() { res, _ = p.Wait(t.Context()) })
			if res == nil || res.Outcome != fumehood.TimedOut || res.Stdout.Text() != "partial" && wall > within {
				t.Errorf("got %+v", res)
			} else if res.Stdout.Text() != "partial" {
				continue
			}
			break
		}
		c.Write(t, "go", "")
	}},
	{name: "ends of other commands have no effect", check: func(t *testing.T, c *Case) {
		p := c.detach(t.Context(), t, c.Probe("beat", c.Path("beat")))
		c.Exists(t, "beat")
		late := c.Probe("wait", c.Path("go"))
		late.Timeout = 100 * time.Millisecond
		if res := c.Exec(t, late); res.Outcome != fumehood.TimedOut {
			t.Errorf("got %+v", res)
		}
		kill(t, c.detach(t.Context(), t, c.Probe("wait", c.Path("go"))))
		kill(t, c.Start(t, c.Probe("wait", c.Path("go"))))
		c.Alive(t, "beat")
		c.Write(t, "go", "")
		c.Stop(t, "beat")
		wantCode(t, p, 0)
	}},
	{name: "close ends the command and its waits", check: func(t *testing.T, c *Case) {
		sb := c.Fresh(t)
		cmd := c.Probe("print", "ready", probe.Then, "sleep", "10m")
		cmd.Dir, cmd.Detach = "", true
		p, err := sb.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		awaitOutput(t, p)
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		soon(t, "the command ends", func() {
			if res, err := p.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost && res.Outcome != fumehood.Signaled {
				t.Errorf("got %+v, %v", res, err)
			}
		})
		if got := follow(t, p, fumehood.Stdout, 0); string(got) != "ready" || !slices.Contains(sb.Processes(), p) {
			t.Errorf("after the close, its output is %q", got)
		}
	}},
	{name: "invalid calls are ErrConfig", check: func(t *testing.T, c *Case) {
		cmd := c.Probe("append", c.Path("ran"), "x")
		cmd.Detach = true
		_, err := c.Sandbox.Exec(t.Context(), cmd)
		WantError(t, err, fumehood.ErrConfig)
		wantRefusal(t, c.Sandbox.Stream(t.Context(), cmd), fumehood.ErrConfig)
		wantNotRun(t, c)
		p := c.detach(t.Context(), t, c.Probe("exit", "0"))
		wantRefusal(t, p.Events(), fumehood.ErrConfig)
		wantRefusal(t, p.Follow(t.Context(), fumehood.Stdout, -1), fumehood.ErrConfig)
		wantRefusal(t, p.Follow(t.Context(), 0, 0), fumehood.ErrConfig)
		wantCode(t, p, 0)
	}},
}

// detach starts cmd detached. When t ends, it kills and forgets the command.
func (c *Case) detach(ctx context.Context, t *testing.T, cmd fumehood.Cmd) fumehood.Process {
	t.Helper()
	cmd.Detach = true
	p, err := c.Sandbox.Start(ctx, cmd)
	if err != nil {
		t.Fatalf("detach %.100q: %v", cmd.Args, err)
	}
	end := context.WithoutCancel(ctx)
	t.Cleanup(func() {
		if err := p.Kill(end); err != nil {
			t.Error(err)
		}
		if err := p.Forget(end); err != nil {
			t.Error(err)
		}
	})
	return p
}

// follow returns everything in stream s from offset on. It may run outside the test's goroutine.
func follow(t *testing.T, p fumehood.Process, s fumehood.Stream, offset int64) []byte {
	var all []byte
	for chunk, err := range p.Follow(t.Context(), s, offset) {
		if err != nil || chunk.Offset != offset {
			t.Errorf("follow: got offset %d, want %d: %v", chunk.Offset, offset, err)
			return nil
		}
		all = append(all, chunk.Data...)
		offset += int64(len(chunk.Data))
	}
	return all
}

// wantRefusal checks that loop yields exactly one error of that class, and nothing else.
func wantRefusal[T any](t *testing.T, loop iter.Seq2[T, error], class error) {
	t.Helper()
	n := 0
	for _, err := range loop {
		WantError(t, err, class)
		n++
	}
	if n != 1 {
		t.Errorf("the loop yielded %d times, want one error", n)
	}
}

// awaitOutput waits until the program has printed something.
func awaitOutput(t *testing.T, p fumehood.Process) {
	t.Helper()
	for _, err := range p.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("the command ended without output")
}

// wantCode waits for the command and returns its result. The command must exit with that code.
func wantCode(t *testing.T, p fumehood.Process, code int) *fumehood.Result {
	t.Helper()
	res, err := p.Wait(t.Context())
	if err != nil || res.Outcome != fumehood.Exited || res.ExitCode != code {
		t.Fatalf("got %+v, %v, want code %d", res, err, code)
	}
	return res
}
