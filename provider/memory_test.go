package provider

import (
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
