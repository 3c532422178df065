package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

var command = fumehood.Cmd{Args: []string{"x"}, StdoutCap: 10, StderrCap: 10}

// exit returns an Exit message with the given JSON fields.
func exit(fields string) string { return `{"exit":{` + fields + `}}` }

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
		"no JSON first":                  {false, one("hello")},
		"nothing first":                  {false, one("")},
		"an empty object first":          {false, one("{}")},
		"an exit first":                  {true, one(fine)},
		"output first":                   {true, func(f *fake, s uint32) { f.output(s, wire.Stdout, "x") }},
		"an end of output first":         {true, func(f *fake, s uint32) { f.send(s, wire.End, wire.Stdout) }},
		"a failure of an unknown kind":   {false, one(`{"failed":{"what":"mood","text":"x"}}`)},
		"a failure without a reason":     {false, one(`{"failed":{}}`)},
		"two starts":                     {false, after(started)},
		"a start with a number":          {false, one(`{"started":{"id":1}}`)},
		"a failure after output":         {false, func(f *fake, s uint32) { f.output(s, wire.Stdout, "x"); f.say(s, `{"failed":{"what":"program"}}`) }},
		"a failure after the start":      {false, after(`{"failed":{"what":"program"}}`)},
		"no JSON":                        {false, after("\xff\xfe")},
		"a list":                         {false, after("[]")},
		"an empty object":                {false, after("{}")},
		"code 300":                       {false, after(exit(`"code":300,"totals":[0,0]`))},
		"code 256":                       {false, after(exit(`"code":256,"totals":[0,0]`))},
		"code -1 without lost":           {false, after(exit(`"code":-1,"totals":[0,0]`))},
		"a code beyond an int":           {false, after(exit(`"code":1e30,"totals":[0,0]`))},
		"signal 99":                      {false, after(exit(`"code":227,"signal":99,"totals":[0,0]`))},
		"signal -9":                      {false, after(exit(`"code":119,"signal":-9,"totals":[0,0]`))},
		"a signal and code 0":            {false, after(exit(`"code":0,"signal":9,"totals":[0,0]`))},
		"lost with a code":               {false, after(exit(`"code":-2,"lost":true,"totals":[0,0]`))},
		"lost with a signal":             {false, after(exit(`"code":-1,"lost":true,"signal":9,"totals":[0,0]`))},
		"negative survivors":             {false, after(exit(`"code":0,"survivors":-1,"totals":[0,0]`))},
		"negative user time":             {false, after(exit(`"code":0,"user_us":-1,"totals":[0,0]`))},
		"negative system time":           {false, after(exit(`"code":0,"system_us":-1,"totals":[0,0]`))},
		"negative memory":                {false, after(exit(`"code":0,"max_rss":-1,"totals":[0,0]`))},
		"negative peak":                  {false, after(exit(`"code":0,"peak":-1,"totals":[0,0]`))},
		"negative memory kills":          {false, after(exit(`"code":0,"oom_kills":-1,"totals":[0,0]`))},
		"negative process limits":        {false, after(exit(`"code":0,"pids_limits":-1,"totals":[0,0]`))},
		"total too large":                {false, printed(exit(`"code":0,"totals":[6,0]`))},
		"exit and start in one":          {false, after(`{"started":{},"exit":{"code":0,"totals":[0,0]}}`)},
		"negative total":                 {false, after(exit(`"code":0,"totals":[-1,0]`))},
		"total too small":                {false, printed(exit(`"code":0,"totals":[4,0]`))},
		"no totals":                      {false, printed(exit(`"code":0`))},
		"live total too small":           {true, printed(exit(`"code":0,"totals":[4,0]`))},
		"live total too large":           {true, printed(exit(`"code":0,"totals":[6,0]`))},
		"a live total of another stream": {true, printed(exit(`"code":0,"totals":[0,5]`))},
		"output on channel 7": {true, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, 7, "x")
		}},
		"output on standard input": {true, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, wire.Stdin, "x")
		}},
		"more than the cap at once": {false, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, wire.Stdout, strings.Repeat("x", 11))
		}},
		"more than the cap in pieces": {false, func(f *fake, s uint32) {
			f.say(s, started)
			f.output(s, wire.Stderr, "123456")
			f.output(s, wire.Stderr, "123456")
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
	for what, class := range map[string]error{
		wire.NoProgram: fumehood.ErrProgramNotFound, wire.NoExecutable: fumehood.ErrNotExecutable,
		wire.NoDir: fumehood.ErrDirNotFound, wire.NoStart: fumehood.ErrNotStarted, wire.NoResources: fumehood.ErrInfrastructure,
		wire.UsedUp: fumehood.ErrBroken, wire.Hindered: fumehood.ErrBroken, wire.NoRlimit: fumehood.ErrUnsupported,
	} {
		g, f := newFake(t)
		_, _, err := run(t, g, f, command, false, func(s uint32) {
			f.say(s, fmt.Sprintf(`{"failed":{"what":%q,"text":"why not"}}`, what))
		})
		if got := fumehood.ClassOf(err); !errors.Is(got, class) || !strings.Contains(err.Error(), "why not") {
			t.Errorf("%s: got %v (class %v)", what, err, got)
		}
		if n := f.count(wire.Open); n != 1 {
			t.Errorf("%s: %d requests", what, n)
		}
	}
}

func TestWait_outcomes(t *testing.T) {
	for name, c := range map[string]struct {
		exit string
		want provider.Exit
	}{
		"a code":            {`"code":137,"totals":[0,0]`, provider.Exit{Outcome: fumehood.Exited, Code: 137}},
		"a code and a kill": {`"code":137,"totals":[0,0],"oom_kills":1`, provider.Exit{Outcome: fumehood.Exited, Code: 137}},
		"a signal":          {`"code":137,"signal":9,"totals":[0,0]`, provider.Exit{Outcome: fumehood.Signaled, Code: 137, Signal: 9}},
		"out of memory":     {`"code":137,"signal":9,"totals":[0,0],"oom_kills":1`, provider.Exit{Outcome: fumehood.OutOfMemory, Code: 137}},
		"another signal":    {`"code":143,"signal":15,"totals":[0,0],"oom_kills":1`, provider.Exit{Outcome: fumehood.Signaled, Code: 143, Signal: 15}},
		"lost":              {`"code":-1,"lost":true,"totals":[0,0]`, provider.Exit{Outcome: fumehood.Lost, Code: -1}},
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
		f.output(s, wire.Stdout, "0123456789")
		f.send(s, wire.End, wire.Stdout) // repeats what the exit implies
		f.output(s, wire.Stderr, "abc")
		f.say(s, exit(`"code":0,"totals":[1000,3]`))
	})
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
		f.say(s, exit(`"code":7,"totals":[4,0]`))
		f.send(s, wire.Close)
	})
	if err != nil || got.Outcome != fumehood.Exited || got.Code != 0 || out.out[1].Len() != 0 {
		t.Errorf("got %+v, %q, %v", got, &out.out[1], err)
	}
	if err := g.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
