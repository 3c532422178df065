package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
)

func TestExitCode(t *testing.T) {
	want := map[error]int{
		fumehood.ErrProgramNotFound: 127,
		fumehood.ErrNotExecutable:   126, fumehood.ErrDirNotFound: 126, fumehood.ErrUserNotFound: 126, fumehood.ErrNotStarted: 126,
	}
	for class, name := range map[error]fumehood.Code{
		fumehood.ErrConfig: "config", fumehood.ErrBroken: "broken", fumehood.ErrUnavailable: "unavailable", fumehood.ErrInfrastructure: "infrastructure",
		fumehood.ErrLimit: "limit", fumehood.ErrCanceled: "canceled", fumehood.ErrUnsupported: "unsupported",
		fumehood.ErrNotStarted: "not-started", fumehood.ErrProgramNotFound: "program-not-found",
		fumehood.ErrNotExecutable: "not-executable", fumehood.ErrDirNotFound: "directory-not-found",
		fumehood.ErrUserNotFound: "user-not-found", fumehood.ErrNotFound: "not-found", fumehood.ErrPermission: "permission-denied",
		fumehood.ErrIsDirectory: "is-a-directory", fumehood.ErrNotDirectory: "not-a-directory", fumehood.ErrExists: "already-exists",
		fumehood.ErrNotEmpty: "not-empty", fumehood.ErrTooLarge: "too-large", fumehood.ErrNotRegular: "not-a-regular-file",
	} {
		code, ok := want[class]
		if !ok {
			code = 125
		}
		err := fmt.Errorf("outer: %w", &fumehood.Error{Op: "test", Class: class, Hint: "do this"})
		if got := exitCode(err); got != code {
			t.Errorf("%s: exit code %d, want %d", name, got, code)
		}
		if got := describe(err); got.Code != name || got.Hint != "do this" || got.Message != err.Error() {
			t.Errorf("%s: described as %+v", name, got)
		}
	}
	for code, err := range map[int]error{125: errors.New("unknown"), 2: usageError("wrong"), 7: &exitError{code: 7}} {
		if got := exitCode(err); got != code {
			t.Errorf("%v: exit code %d, want %d", err, got, code)
		}
	}
	if got := describe(usageError("wrong")).Code; got != "config" {
		t.Errorf("wrong usage is described as %q", got)
	}
	if describe(nil) != nil {
		t.Error("describe(nil) is not nil")
	}
}

func TestVerdict(t *testing.T) {
	opts := runOptions{cmd: fumehood.Cmd{Timeout: time.Second}}
	opts.spec.Limits.Memory = 64 << 20
	unlimited := opts
	unlimited.spec.Limits.Memory = fumehood.NoLimit
	for _, c := range []struct {
		name string
		opts runOptions
		res  fumehood.Result
		code int
		says string
	}{
		{"success", opts, fumehood.Result{Outcome: fumehood.Exited}, 0, ""},
		{"failure", opts, fumehood.Result{Outcome: fumehood.Exited, ExitCode: 3}, 3, ""},
		{"its own 124", opts, fumehood.Result{Outcome: fumehood.Exited, ExitCode: 124}, 124, ""},
		{"signal", opts, fumehood.Result{Outcome: fumehood.Signaled, ExitCode: 139, Signal: 11}, 139, ""},
		{"timeout", opts, fumehood.Result{Outcome: fumehood.TimedOut, ExitCode: -1}, 124, "the command timed out after 1s"},
		{"memory", opts, fumehood.Result{Outcome: fumehood.OutOfMemory, ExitCode: 137}, 137, "the command was killed: out of memory (limit 64MiB)"},
		{"memory of a child", opts, fumehood.Result{Outcome: fumehood.OutOfMemory, ExitCode: -1, Reason: "x"}, 137, "the command ran out of memory (limit 64MiB): x"},
		{"a kill beside others", opts, fumehood.Result{Outcome: fumehood.Exited, ExitCode: 3, Reason: "the kernel killed"}, 3, "the kernel killed"},
		{"a kill by the caller", opts, fumehood.Result{Outcome: fumehood.Signaled, ExitCode: 143, Reason: "killed by the caller"}, 143, "the command was killed by the caller"},
		{"memory of the machine", unlimited, fumehood.Result{Outcome: fumehood.OutOfMemory, ExitCode: 137}, 137, "the command was killed: out of memory (no limit is set, so the machine's memory ran out)"},
		{"lost", opts, fumehood.Result{Outcome: fumehood.Lost, ExitCode: -1, Reason: "its container ended"}, 125, "the command is lost, and its outcome is unknown: its container ended"},
		{"unknown", opts, fumehood.Result{Outcome: "new"}, 125, `run: unknown outcome "new"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stderr bytes.Buffer
			a := &commandLine{Streams: Streams{Err: &stderr}}
			if got := a.finish(t.Context(), "fumehood run", a.verdict(c.opts, &c.res)); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
			want := ""
			if c.says != "" {
				want = "fumehood: " + c.says + "\n"
			}
			if stderr.String() != want {
				t.Errorf("stderr is %q, want %q", &stderr, want)
			}
		})
	}
}

func TestFinish_prefix(t *testing.T) {
	var stderr bytes.Buffer
	a := &commandLine{Streams: Streams{Err: &stderr}}
	if code := a.finish(t.Context(), "fumehood", errors.Join(errors.New("one"), errors.New("two"))); code != 125 {
		t.Errorf("exit code %d", code)
	}
	if got, want := stderr.String(), "fumehood: one\nfumehood: two\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFinish_signal(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&signaled{name: "interrupt", number: 2})
	for err, want := range map[error]int{
		&fumehood.Error{Op: "exec", Class: fumehood.ErrCanceled}:    130,
		fmt.Errorf("read: %w", context.Canceled):                    130,
		context.Cause(ctx):                                          130,
		&fumehood.Error{Op: "exec", Class: fumehood.ErrUnavailable}: 125,
		&exitError{code: 3}:                                         3,
	} {
		a := &commandLine{Streams: Streams{Err: io.Discard}}
		if got := a.finish(ctx, "fumehood run", err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}

func TestParseEnv(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"SET": "value", "EMPTY": ""}[name]
		return v, ok
	}
	got, err := parseEnv([]string{"A=b=c", "SET", "EMPTY", "NONE=", "A=later"}, lookup)
	if err != nil {
		t.Fatal(err)
	}
	if want := "map[A:later EMPTY: NONE: SET:value]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	for _, bad := range []string{"UNSET", "", "=value"} {
		if _, err := parseEnv([]string{bad}, lookup); err == nil {
			t.Errorf("--env %q: no error", bad)
		}
	}
}

func TestParseMount(t *testing.T) {
	here, err := filepath.Abs("data")
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]fumehood.Mount{
		"data:/data":    {Host: here, Container: "/data"},
		"data:/data:ro": {Host: here, Container: "/data"},
		"data:/data:rw": {Host: here, Container: "/data", Writable: true},
	} {
		if got, err := parseMount(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "data", ":/data", "data:", "data:relative", "data:/data:", "data:/data:wr", "data:/data:ro:rw"} {
		if got, err := parseMount(bad); err == nil {
			t.Errorf("%q is taken as %+v", bad, got)
		}
	}
}

func TestParseTransfer(t *testing.T) {
	for _, c := range []struct {
		in   string
		want app.Transfer
		out  bool
	}{
		{"a:/b", app.Transfer{Host: "a", Sandbox: "/b"}, false},
		{"a:b", app.Transfer{Host: "a", Sandbox: "b"}, false},
		{"a:/b:c", app.Transfer{Host: "a", Sandbox: "/b:c"}, false},
		{":/b:a", app.Transfer{Host: "a", Sandbox: "/b"}, true},
		{":/b:a:c", app.Transfer{Host: "a:c", Sandbox: "/b"}, true},
	} {
		if got, out, err := parseTransfer(c.in); err != nil || got != c.want || out != c.out {
			t.Errorf("%s: %+v, %v, %v", c.in, got, out, err)
		}
	}
	for _, bad := range []string{"", "a", "a:", ":", ":/b", ":/b:", "::a"} {
		if got, _, err := parseTransfer(bad); err == nil {
			t.Errorf("%q is taken as %+v", bad, got)
		}
	}
}

func TestLogHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(newLogHandler(&out, slog.LevelInfo))
	log.Debug("not shown")
	log.Info("told")
	log.Warn("watch out", "path", "/a b")
	log.With("sandbox", "s").WithGroup("g").Error("broken", "code", 3)
	log.Info("read", "path", "x\nwarning: told by another")
	want := "fumehood: told\nfumehood: warning: watch out (path=/a b)\nfumehood: error: broken (sandbox=s, code=3)\n" +
		"fumehood: read (path=x\nfumehood: warning: told by another)\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestPullProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newPullProgress(func(format string, args ...any) { fmt.Fprintf(&out, "fumehood: "+format+"\n", args...) })
	p.now = func() time.Time { return now }
	at := func(after time.Duration, ev provider.Progress) {
		now = time.Unix(0, 0).Add(after)
		ev.Image = "img"
		p.report(ev)
	}
	at(0, provider.Progress{Status: "Pulling from library/img"})
	at(time.Second, provider.Progress{Layer: "a", Current: 1 << 20, Total: 4 << 20})
	at(1900*time.Millisecond, provider.Progress{Layer: "b", Current: 1 << 20, Total: 6 << 20})
	at(2*time.Second, provider.Progress{Layer: "a", Current: 2 << 20, Total: 4 << 20})
	at(3*time.Second, provider.Progress{Layer: "a", Current: 4 << 20, Total: 4 << 20})
	at(5*time.Second, provider.Progress{Layer: "a", Status: "Pull complete"})
	at(5*time.Second, provider.Progress{Build: true, Status: "[1/2] FROM a"})
	want := "fumehood: pulling img\nfumehood: pulling img: 3MiB of 10MiB so far\nfumehood: pulling img: 5MiB of 10MiB so far\n" +
		"fumehood: building img: [1/2] FROM a\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		text   string
		indent int
		want   string
	}{
		{"", 4, ""},
		{"short", 4, "short"},
		{strings.Repeat("word ", 16), 0, strings.TrimSpace(strings.Repeat("word ", 16))},
		{strings.Repeat("word ", 17), 0, strings.TrimSpace(strings.Repeat("word ", 16)) + "\nword"},
		{"a " + long + " b", 2, "a\n  " + long + "\n  b"},
	} {
		if got := wrap(c.text, c.indent); got != c.want {
			t.Errorf("%q by %d: %q, want %q", c.text, c.indent, got, c.want)
		}
	}
}

func TestCheckText(t *testing.T) {
	got := checkText(docker.Check{Name: "engine", Status: docker.Warn, Detail: "1.2.3", Hint: strings.Repeat("word ", 20)})
	want := "warn  engine           1.2.3\n" +
		"                       > word word word word word word word word word word word\n" +
		"                         word word word word word word word word word\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestPrintLeftovers(t *testing.T) {
	found := []provider.Leftover{
		{Kind: "container", Name: "a-1", Sandbox: "a", Remove: true, Reason: "its owner has ended"},
		{Kind: "container", Name: "b-1", Sandbox: "b", Reason: "its owner is running"},
		{Kind: "network", Name: "a_net", Sandbox: "a", Remove: true, Reason: "its owner has ended"},
		{Kind: "volume", Name: "v", Cache: true, Reason: "a cache"},
	}
	text := func(dryRun bool) string {
		var out bytes.Buffer
		a := &commandLine{Streams: Streams{Out: &out}}
		if err := a.printLeftovers(found, dryRun); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `a: would remove (its owner has ended)
  container  a-1
  network    a_net
b: left (its owner is running)
  container  b-1
caches: left (a cache)
  volume     v
`
	if got := text(true); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	found[0].Removed, found[2].Err = true, errors.New("busy")
	want = `a: removed (its owner has ended)
  container  a-1
b: left (its owner is running)
  container  b-1
a: failed (its owner has ended)
  network    a_net
caches: left (a cache)
  volume     v
`
	if got := text(false); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	found = nil
	if got, want := text(false), "nothing to clean up\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReport_write(t *testing.T) {
	var out bytes.Buffer
	r := report{sandbox: "s", image: "i", start: 1500 * time.Microsecond, result: &fumehood.Result{
		Outcome: fumehood.Signaled, ExitCode: 139, Signal: 11, Duration: time.Second, Leaked: true,
		Stdout: fumehood.Output{Bytes: []byte("tail"), Total: 10}, Stderr: fumehood.Output{Bytes: []byte{0xff}, Total: 1},
	}}
	if err := r.write(&out, &fumehood.Error{Op: "copy", Class: fumehood.ErrNotFound, Hint: "look"}); err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(got) // sorts the keys
	if err != nil {
		t.Fatal(err)
	}
	want := `{"duration_ms":1000,"error":{"class":"not-found","hint":"look","message":"copy: not found","op":"copy"},"exit_code":139,"image":"i","leaked":true,` +
		`"outcome":"signaled","sandbox":"s","signal":11,"start_ms":1.5,` +
		`"stderr":{"base64":"/w==","bytes":1,"text":"�","truncated":false},` +
		`"stdout":{"bytes":10,"text":"tail","truncated":true}}`
	if string(compact) != want {
		t.Errorf("got\n%s\nwant\n%s", compact, want)
	}
}
