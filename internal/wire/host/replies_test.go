package host

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

var command = fumehood.Cmd{Args: []string{"x"}, StdoutCap: 10, StderrCap: 10}

func TestExec_protocolErrors(t *testing.T) {
	one := func(text string) func(*fake, uint32) {
		return func(f *fake, s uint32) { f.say(s, text) }
	}
	after := func(text string) func(*fake, uint32) {
		return func(f *fake, s uint32) { f.say(s, started); f.say(s, text) }
	}
	printed := func(text string) func(*fake, uint32) { // 5 bytes of output, then text
		return func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, wire.Stdout, "12345")
			f.say(s, text)
		}
	}
	for name, c := range map[string]struct {
		live   bool
		script func(*fake, uint32)
	}{
		"text first":                     {false, one("hello")},
		"nothing first":                  {false, one("")},
		"an empty reply first":           {false, one(reply(wire.Reply{}))},
		"an exit first":                  {true, one(fine)},
		"output first":                   {true, func(f *fake, s uint32) { f.output(s, wire.Stdout, "x") }},
		"an end of output first":         {true, func(f *fake, s uint32) { f.send(s, wire.End, wire.Stdout) }},
		"a failure of an unknown kind":   {false, one(failed("mood"))},
		"a failure without a reason":     {false, one(failed(""))},
		"two starts":                     {false, after(started)},
		"a start with a number":          {false, one(reply(wire.Reply{Started: &wire.Started{ID: 1}}))},
		"a failure after output":         {false, func(f *fake, s uint32) { f.output(s, wire.Stdout, "x"); f.say(s, failed(wire.NoProgram)) }},
		"a failure after the start":      {false, after(failed(wire.NoProgram))},
		"no number":                      {false, after("\xff\xfe")},
		"more than a reply":              {false, after(fine + "x")},
		"part of a reply":                {false, after(fine[:len(fine)-1])},
		"an empty reply":                 {false, after(reply(wire.Reply{}))},
		"code 300":                       {false, after(exit(wire.Exit{Code: 300}))},
		"code 256":                       {false, after(exit(wire.Exit{Code: 256}))},
		"code -1 without lost":           {false, after(exit(wire.Exit{Code: -1}))},
		"a code beyond an int":           {false, after("\x00\x00\x02" + strings.Repeat("\xff", 11))},
		"signal 99":                      {false, after(exit(wire.Exit{Code: 227, Signal: 99}))},
		"signal -9":                      {false, after(exit(wire.Exit{Code: 119, Signal: -9}))},
		"a signal and code 0":            {false, after(exit(wire.Exit{Signal: 9}))},
		"lost with a code":               {false, after(exit(wire.Exit{Code: -2, Lost: true}))},
		"lost with a signal":             {false, after(exit(wire.Exit{Code: -1, Lost: true, Signal: 9}))},
		"negative survivors":             {false, after(exit(wire.Exit{Survivors: -1}))},
		"negative user time":             {false, after(exit(wire.Exit{UserUS: -1}))},
		"negative system time":           {false, after(exit(wire.Exit{SystemUS: -1}))},
		"negative memory":                {false, after(exit(wire.Exit{MaxRSS: -1}))},
		"negative peak":                  {false, after(exit(wire.Exit{Peak: -1}))},
		"negative memory kills":          {false, after(exit(wire.Exit{OOMKills: -1}))},
		"negative process limits":        {false, after(exit(wire.Exit{PIDsLimits: -1}))},
		"total too large":                {false, printed(exit(wire.Exit{Totals: [2]int64{6, 0}}))},
		"exit and start in one":          {false, after(reply(wire.Reply{Started: &wire.Started{}, Exit: &wire.Exit{}}))},
		"negative total":                 {false, after(exit(wire.Exit{Totals: [2]int64{-1, 0}}))},
		"total too small":                {false, printed(exit(wire.Exit{Totals: [2]int64{4, 0}}))},
		"no totals":                      {false, printed(exit(wire.Exit{}))},
		"live total too small":           {true, printed(exit(wire.Exit{Totals: [2]int64{4, 0}}))},
		"live total too large":           {true, printed(exit(wire.Exit{Totals: [2]int64{6, 0}}))},
		"a live total of another stream": {true, printed(exit(wire.Exit{Totals: [2]int64{0, 5}}))},
		"output on channel 7": {true, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, 7, "x")
		}},
		"output on standard input": {true, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, wire.Stdin, "x")
		}},
		"less than it reports": {false, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, wire.Stdout, "0123456789")
			f.say(s, exit(wire.Exit{Totals: [2]int64{11, 0}}))
		}},
		"an offset of live output": {true, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, wire.StdoutAt, "\x00\x00\x00\x00\x00\x00\x00\x01")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g, f := newFake(t)
			_, out, err := run(t, g, f, command, c.live, func(s uint32) { c.script(f, s) })
			if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "broke the protocol") {
				t.Errorf("got %v (class %v)", err, fumehood.ClassOf(err))
			}
			if n := out.out[1].Len() + out.out[2].Len(); !c.live && n > 10 {
				t.Errorf("%d bytes of output delivered", n)
			}
			// Only this stream ended with an error. The next command must work.
			if exit, _, err := run(t, g, f, command, false, func(s uint32) { f.say(s, started); f.say(s, fine) }); err != nil || exit.Outcome != fumehood.Exited {
				t.Errorf("the next command: %+v, %v", exit, err)
			}
			if n := f.count(wire.Open); n != 2 {
				t.Errorf("%d requests for 2 commands", n)
			}
		})
	}
}

func TestExec_failedStart(t *testing.T) {
	for kind, class := range map[string]error{
		wire.NoProgram: fumehood.ErrProgramNotFound, wire.NoExecutable: fumehood.ErrNotExecutable,
		wire.NoDir: fumehood.ErrDirNotFound, wire.NoStart: fumehood.ErrNotStarted, wire.NoResources: fumehood.ErrInfrastructure,
		wire.UsedUp: fumehood.ErrBroken, wire.Hindered: fumehood.ErrBroken, wire.NoProcesses: fumehood.ErrLimit, wire.NoRlimit: fumehood.ErrUnsupported,
	} {
		g, f := newFake(t)
		_, _, err := run(t, g, f, command, false, func(s uint32) {
			f.say(s, failed(kind))
		})
		if got := fumehood.ClassOf(err); !errors.Is(got, class) || !strings.Contains(err.Error(), "why not") {
			t.Errorf("%s: got %v (class %v)", kind, err, got)
		}
		if n := f.count(wire.Open); n != 1 {
			t.Errorf("%s: %d requests", kind, n)
		}
	}
}

func TestWait_outcomes(t *testing.T) {
	for name, c := range map[string]struct {
		exit wire.Exit
		want provider.Exit
	}{
		"a code":            {wire.Exit{Code: 137}, provider.Exit{Outcome: fumehood.Exited, Code: 137}},
		"a code and a kill": {wire.Exit{Code: 137, OOMKills: 1}, provider.Exit{Outcome: fumehood.Exited, Code: 137}},
		"a signal":          {wire.Exit{Code: 137, Signal: 9}, provider.Exit{Outcome: fumehood.Signaled, Code: 137, Signal: 9}},
		"out of memory":     {wire.Exit{Code: 137, Signal: 9, OOMKills: 1}, provider.Exit{Outcome: fumehood.OutOfMemory, Code: 137}},
		"a host's kill":     {wire.Exit{Code: 137, Signal: 9, OOMKills: 1, Killed: true}, provider.Exit{Outcome: fumehood.Signaled, Code: 137, Signal: 9}},
		"another signal":    {wire.Exit{Code: 143, Signal: 15, OOMKills: 1}, provider.Exit{Outcome: fumehood.Signaled, Code: 143, Signal: 15}},
		"lost":              {wire.Exit{Code: -1, Lost: true}, provider.Exit{Outcome: fumehood.Lost, Code: -1}},
	} {
		g, f := newFake(t)
		got, _, err := run(t, g, f, command, false, func(s uint32) { f.say(s, started); f.say(s, exit(c.exit)) })
		if err != nil || got.Outcome != c.want.Outcome || got.Code != c.want.Code || got.Signal != c.want.Signal {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestExec_output(t *testing.T) {
	g, f := newFake(t)
	got, out, err := run(t, g, f, command, false, func(s uint32) {
		f.say(s, started)
		f.output(s, wire.Stdout, "ahead")
		f.output(s, wire.StdoutAt, "\x00\x00\x00\x00\x00\x00\x03\xde") // 990
		f.output(s, wire.Stdout, "0123456789")
		f.send(s, wire.End, wire.Stdout) // repeats what the exit implies
		f.output(s, wire.Stderr, "abc")
		f.say(s, exit(wire.Exit{Totals: [2]int64{1000, 3}}))
	})
	out.out[1].Next(len("ahead"))
	if err != nil || out.out[1].String() != "0123456789" || out.out[2].String() != "abc" || *got.Totals != [2]int64{1000, 3} {
		t.Errorf("got %+v, %q, %q, %v", got, &out.out[1], &out.out[2], err)
	}
}

func TestExec_afterExit(t *testing.T) {
	g, f := newFake(t)
	got, out, err := run(t, g, f, command, false, func(s uint32) {
		f.say(s, started)
		f.say(s, fine)
		f.output(s, wire.Stdout, "late")
		f.say(s, exit(wire.Exit{Code: 7, Totals: [2]int64{4, 0}}))
		f.send(s, wire.Close)
	})
	if err != nil || got.Outcome != fumehood.Exited || got.Code != 0 || out.out[1].Len() != 0 {
		t.Errorf("got %+v, %q, %v", got, &out.out[1], err)
	}
	if err := g.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// Output that was sent ahead is there if the guest is lost, and what is missing in between is reported in order.
func TestExec_lostAhead(t *testing.T) {
	for _, stdin := range []bool{false, true} { // with input, the start is awaited before the output is received
		g, f := newFake(t)
		out := &sink{}
		cmd := command
		if stdin {
			cmd.Stdin = strings.NewReader("")
		}
		go func() {
			<-f.opened
			f.say(1, started)
			f.output(1, wire.Stdout, "first")
			f.output(1, wire.StdoutAt, "\x00\x00\x00\x00\x00\x00\x00\x64") // 100
			f.output(1, wire.Stdout, "last")
			_ = f.conn.Close()
		}()
		p, err := g.Exec(t.Context(), cmd, false, out.take)
		if err != nil {
			t.Fatal(err)
		}
		var skipped []int64
		p.OnGap(func(s fumehood.Stream, n int64) {
			skipped = append(skipped, n, int64(out.out[s].Len()))
		})
		got, err := p.Wait(t.Context())
		if err != nil || got.Outcome != fumehood.Lost || out.out[1].String() != "firstlast" || !slices.Equal(skipped, []int64{95, 5}) {
			t.Errorf("got %+v, %q, skipped %v, %v", got, &out.out[1], skipped, err)
		}
	}
}
