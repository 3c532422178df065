package cli

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

func TestEvalProgress_lines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newEvalProgress(&out)
		<-time.After(12 * time.Second)
		p.report(task.Progress{Total: 3, Queued: 2, Starting: 1})
		p.report(task.Progress{Total: 3, Queued: 1, Starting: 1, Running: 1})
		<-time.After(14 * time.Second)
		if _, err := p.Write([]byte("something else\n")); err != nil {
			t.Error(err)
		}
		p.report(task.Progress{Total: 3, Passed: 1, Failed: 1, Errors: 1})
		<-time.After(5 * time.Second)
		p.stop()
		p.stop()
		want := `fumehood: 0/3 done, 1 running, 1 starting, 15s
something else
fumehood: 3/3 done, 1 passed, 1 failed, 1 without a score, 30s
`
		if got := out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestEvalProgress_terminal(t *testing.T) {
	r, w, err := os.Pipe() // not a terminal, so it has no size
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &evalProgress{w: &out, terminal: w, began: time.Now()}
		p.tell() // no counts yet
		p.report(task.Progress{Total: 2, Starting: 1})
		p.tell()
		p.tell()
		if _, err := p.Write([]byte("something else\n")); err != nil {
			t.Error(err)
		}
		const clear = "\r\x1b[K"
		line := clear + "0/2 done, 1 starting, 0s"
		if got, want := out.String(), line+clear+"something else\n"+line; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestOnceHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(newOnceHandler(newLogHandler(&out, slog.LevelInfo)))
	for _, name := range []string{"one", "two"} {
		log.Info("it has no network", "sandbox", name, "because", "it has none")
		log.Warn("it is slow", "sandbox", name)
	}
	log.With("task", "sums").Info("it has no network")
	for _, name := range []string{"one", "two"} {
		logger := log.With("sandbox", name, "service", "web")
		logger.Info("it is reached slowly")
		logger.Warn("its guest has died")
	}
	want := `fumehood: it has no network (because=it has none)
fumehood: warning: it is slow (sandbox=one)
fumehood: warning: it is slow (sandbox=two)
fumehood: it is reached slowly (service=web)
fumehood: warning: its guest has died (sandbox=one, service=web)
fumehood: warning: its guest has died (sandbox=two, service=web)
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPercent_rounding(t *testing.T) {
	for part, want := range map[float64]string{0: "0.0", 0.00001: "0.1", 0.5: "50.0", 0.99999: "99.9", 1: "100.0"} {
		if got := percent(part); got != want {
			t.Errorf("%v: got %s %%, want %s %%", part, got, want)
		}
	}
	for value, want := range map[float64]string{0: "0", 0.5: "0.5", 2.0 / 3: "0.666", 0.99999: "0.999", 1: "1", 1e-7: "0.000"} {
		if got := scoreOf(value); got != want {
			t.Errorf("%v: got %s, want %s", value, got, want)
		}
	}
}

func TestShowAttempt_escapes(t *testing.T) {
	r := task.SampleResult{
		Sample: "a\x1b[2Jb", Epoch: 2, Sandbox: "fumehood-a",
		Score: &task.Score{Reasons: []string{"step 1: it says \x1b]0;owned\x07\nand more"}, Parts: map[string]float64{"\x1b[2J": 1}},
		Steps: []task.StepResult{{Name: "1\x1b[2J", Result: fumehood.Result{Outcome: "exited", Stdout: fumehood.Output{Total: 30, Bytes: []byte("\ta \"b\" c\\d\x1b[2J\r\u202e\n")}}}},
	}
	var out bytes.Buffer
	a := &commandLine{Streams: Streams{Out: &out}}
	if err := a.showAttempt(&r); err != nil {
		t.Fatal(err)
	}
	text := out.String() + attemptName(&r) + row(&r) + whyNot(&r)
	if strings.ContainsAny(text, "\x1b\x07\r\u202e") {
		t.Errorf("control characters in %q", text)
	}
	if want := "    \ta \"b\" c\\d\\x1b[2J\\r\\u202e\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}
