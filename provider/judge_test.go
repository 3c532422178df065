package provider

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

func TestJudgeMemory(t *testing.T) {
	exited := func(code int) fumehood.Result { return fumehood.Result{Outcome: fumehood.Exited, ExitCode: code} }
	killed := fumehood.Result{Outcome: fumehood.Signaled, ExitCode: 143, Signal: 15, Reason: "killed by the caller"}
	late := fumehood.Result{Outcome: fumehood.TimedOut, ExitCode: -1}
	direct := fumehood.Result{Outcome: fumehood.OutOfMemory, ExitCode: 137}
	for name, c := range map[string]struct {
		result fumehood.Result
		kills  int64
		alone  bool
		want   fumehood.Outcome
		reason string // a part of it; empty for none
	}{
		"no kill":                   {exited(137), 0, true, fumehood.Exited, ""},
		"a child's kill":            {exited(137), 1, true, fumehood.OutOfMemory, "killed a process of the service for memory, and the command exited with code 137"},
		"several":                   {exited(1), 3, true, fumehood.OutOfMemory, "killed 3 processes"},
		"handled":                   {exited(0), 1, true, fumehood.Exited, ""},
		"handled beside others":     {exited(0), 1, false, fumehood.Exited, ""},
		"a signal":                  {fumehood.Result{Outcome: fumehood.Signaled, ExitCode: 134, Signal: 6}, 1, true, fumehood.OutOfMemory, "was ended by signal 6"},
		"the caller's kill":         {killed, 1, true, fumehood.OutOfMemory, "and the command was killed by the caller"},
		"the timeout":               {late, 1, true, fumehood.OutOfMemory, "was killed at its timeout of 5s"},
		"beside others":             {exited(137), 2, false, fumehood.Exited, "killed 2 processes of the service for memory meanwhile, while other programs ran"},
		"the timeout beside others": {late, 1, false, fumehood.TimedOut, "while other programs ran"},
		"a kill beside others":      {killed, 1, false, fumehood.Signaled, "killed by the caller; the kernel killed a process"},
		"the program itself":        {direct, 1, false, fumehood.OutOfMemory, ""},
		"the CPU time":              {fumehood.Result{Outcome: fumehood.CPUTimeExceeded, ExitCode: -1, Reason: "x"}, 1, true, fumehood.CPUTimeExceeded, "x"},
		"lost":                      {fumehood.Result{Outcome: fumehood.Lost, ExitCode: -1, Reason: "x"}, 1, true, fumehood.Lost, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.result
			r.Usage.OOMKills = c.kills
			judgeMemory(&r, c.alone, 5*time.Second)
			if r.Outcome != c.want || r.ExitCode != c.result.ExitCode || !strings.Contains(r.Reason, c.reason) || (r.Reason == "") != (c.reason == "") || r.Signal != 0 && r.Outcome != fumehood.Signaled {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	exited := Exit{Outcome: fumehood.Exited, Code: 3}
	signaled := Exit{Outcome: fumehood.Signaled, Code: 137, Signal: 9}
	lost := Exit{Outcome: fumehood.Lost, Code: -1, Reason: "the guest is gone"}
	inside := Exit{Outcome: fumehood.Lost, Code: -1, Reason: "it was killed", CausedInside: true}
	type want struct {
		outcome      fumehood.Outcome
		code, signal int
		reason       string
		inside       bool
	}
	for name, c := range map[string]struct {
		ending
		want
	}{
		"exit":                            {ending{Exit: exited}, want{fumehood.Exited, 3, 0, "", false}},
		"exit after a late kill":          {ending{Exit: exited, why: errKilled, killed: true}, want{fumehood.Exited, 3, 0, "", false}},
		"a signal of its own":             {ending{Exit: signaled}, want{fumehood.Signaled, 137, 9, "", false}},
		"a caller's kill":                 {ending{Exit: signaled, why: errKilled, killed: true}, want{fumehood.Signaled, 137, 9, "killed by the caller", false}},
		"another process's kill":          {ending{Exit: signaled, killed: true}, want{fumehood.Signaled, 137, 9, "killed by the caller", false}},
		"another signal despite the kill": {ending{Exit: Exit{Outcome: fumehood.Signaled, Code: 139, Signal: 11}, killed: true}, want{fumehood.Signaled, 139, 11, "", false}},
		"a timeout":                       {ending{Exit: signaled, why: errTimeout}, want{fumehood.TimedOut, -1, 0, "", false}},
		"exit at the timeout":             {ending{Exit: exited, why: errTimeout}, want{fumehood.TimedOut, -1, 0, "", false}},
		"lost at the timeout":             {ending{Exit: inside, why: errTimeout, err: errors.New("broken")}, want{fumehood.TimedOut, -1, 0, "", false}},
		"a timeout in the sandbox":        {ending{Exit: Exit{Outcome: fumehood.TimedOut, Code: -1}}, want{fumehood.TimedOut, -1, 0, "", false}},
		"CPU time before the timeout":     {ending{Exit: Exit{Outcome: fumehood.CPUTimeExceeded, Code: -1}, why: errTimeout}, want{fumehood.CPUTimeExceeded, -1, 0, "", false}},
		"lost":                            {ending{Exit: lost}, want{fumehood.Lost, -1, 0, "the guest is gone", false}},
		"lost, by the code":               {ending{Exit: inside}, want{fumehood.Lost, -1, 0, "it was killed", true}},
		"lost with an error":              {ending{Exit: lost, err: errors.New("broken pipe")}, want{fumehood.Lost, -1, 0, "broken pipe", false}},
		"lost at the close":               {ending{Exit: lost, sandbox: "closed"}, want{fumehood.Lost, -1, 0, "the sandbox was closed while the command ran", false}},
		"lost by the code at the close":   {ending{Exit: inside, sandbox: "closed"}, want{fumehood.Lost, -1, 0, "it was killed", true}},
		"lost after a kill":               {ending{Exit: inside, why: errKilled, killed: true, sandbox: "closed"}, want{fumehood.Lost, -1, 0, "it was killed", true}},
		"no end after a kill":             {ending{why: errKilled, killed: true}, want{fumehood.Lost, -1, 0, "this transport cannot kill the command", false}},
		"a CPU limit of each process":     {ending{Exit: Exit{Outcome: fumehood.Signaled, Code: 152, Signal: 24}, cpu: time.Second}, want{fumehood.Signaled, 152, 24, "killed by SIGXCPU, with a CPU limit of 1s for each process", false}},
		"CPU time and memory": {
			ending{Exit: Exit{Outcome: fumehood.CPUTimeExceeded, Code: -1, Reason: "x", Alone: true, Usage: fumehood.Usage{OOMKills: 1}}},
			want{fumehood.CPUTimeExceeded, -1, 0, "x", false},
		},
		"timeout and memory": {
			ending{Exit: Exit{Outcome: fumehood.Signaled, Code: 137, Signal: 9, Alone: true, Usage: fumehood.Usage{OOMKills: 1}}, why: errTimeout},
			want{fumehood.OutOfMemory, -1, 0, "the kernel killed a process of the service for memory, and the command was killed at its timeout", false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := judge(c.ending)
			if got := (want{r.Outcome, r.ExitCode, r.Signal, r.Reason, r.CausedInside}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestNameRlimit(t *testing.T) {
	signaled := func(signal int, used time.Duration) fumehood.Result {
		return fumehood.Result{Outcome: fumehood.Signaled, Signal: signal, Usage: fumehood.Usage{User: used}}
	}
	killed := signaled(9, 2*time.Second)
	killed.Reason = "killed by the caller"
	for name, c := range map[string]struct {
		result fumehood.Result
		limit  time.Duration
		reason string
	}{
		"SIGXCPU":           {signaled(24, 0), time.Second, "killed by SIGXCPU, with a CPU limit of 1s for each process"},
		"SIGXCPU, no limit": {signaled(24, time.Minute), 0, ""},
		"SIGKILL":           {signaled(9, 2*time.Second), time.Second, "killed by SIGKILL after 2s of CPU time, with a CPU limit of 1s for each process"},
		"SIGKILL, early":    {signaled(9, time.Second/2), time.Second, ""},
		"another signal":    {signaled(11, 2*time.Second), time.Second, ""},
		"the caller":        {killed, time.Second, "killed by the caller"},
		"an exit":           {fumehood.Result{Outcome: fumehood.Exited, ExitCode: 152}, time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if nameRlimit(&c.result, c.limit); c.result.Reason != c.reason {
				t.Errorf("got %q, want %q", strings.TrimSpace(c.result.Reason), c.reason)
			}
		})
	}
}
