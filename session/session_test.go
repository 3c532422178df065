package session_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/test/dockertest"
)

const image = "fumehood-test/python"

// place is an environment in which sessions run.
type place struct {
	name     string
	provider fumehood.Provider
	log      *lines
	state    string // holds the private folders of sessions
}

// environment returns a spec of the place's type. More are lines of YAML.
func (p *place) environment(t *testing.T, more ...string) *spec.Environment {
	t.Helper()
	text := "type: local\n"
	if p.name == "docker" {
		text = "type: docker\ndocker:\n  image: " + image + "\n"
	}
	env, err := spec.Parse("test.yaml", []byte(text+strings.Join(more, "\n")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// workdir returns the path at which the session's commands find the workspace.
func (p *place) workdir(s *session.Session) string {
	if p.name == "docker" {
		return "/workspace"
	}
	return s.Workspace()
}

// places runs a test under docker and under local, in parallel with others.
func places(t *testing.T, test func(*testing.T, *place)) {
	t.Parallel()
	t.Run("docker", func(t *testing.T) {
		t.Parallel()
		test(t, inDocker(t))
	})
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, inLocal(t))
	})
}

func inLocal(t *testing.T) *place {
	t.Helper()
	p, err := local.New(local.Options{StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &place{name: "local", provider: closed(t, p), log: &lines{}, state: t.TempDir()}
}

func inDocker(t *testing.T) *place {
	t.Helper()
	return &place{name: "docker", provider: dockertest.Provider(t, docker.Options{NoSweep: true}), log: &lines{}, state: t.TempDir()}
}

func closed(t *testing.T, p fumehood.Provider) fumehood.Provider {
	ctx := t.Context()
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// open opens a session whose workspace has these files. It is closed when the test ends.
func (p *place) open(t *testing.T, env *spec.Environment, kind session.Kind, files map[string]string, change ...func(*session.Options)) *session.Session {
	t.Helper()
	opts := session.Options{
		Provider: p.provider, Environment: env, Kind: kind, Workspace: folder(t, files), Dir: p.state,
		Logger: slog.New(slog.NewTextHandler(p.log, nil)),
	}
	for _, c := range change {
		c(&opts)
	}
	s, err := session.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func spawn(t *testing.T, s *session.Session, opts session.SpawnOptions) *session.Runtime {
	t.Helper()
	r, err := s.Spawn(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func execute(t *testing.T, r *session.Runtime, opts session.ExecuteOptions) *session.Result {
	t.Helper()
	res, err := r.Execute(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func sh(command string) session.ExecuteOptions { return session.ExecuteOptions{Command: command} }

// outputs returns a result's four outputs and its outcome as one text.
func outputs(r *session.Result) string {
	return strings.Join([]string{r.SetupStdout.Text(), r.SetupStderr.Text(), r.Stdout.Text(), r.Stderr.Text()}, "|") + "|" + string(r.Outcome)
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines collects the log of sessions. They may run at the same time: each has its own handler.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

func TestExecute_privateCopy(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		var source string
		s := p.open(t, p.environment(t), session.Agent, map[string]string{"a/b.txt": "hello\n"}, func(o *session.Options) { source = o.Workspace })
		r := spawn(t, s, session.SpawnOptions{})
		res := execute(t, r, sh("cat a/b.txt; echo more >> a/b.txt; pwd; exit 3"))
		if got, want := outputs(res), "||hello\n"+p.workdir(s)+"\n||exited"; got != want || res.ExitCode != 3 || res.SetupEnded || res.TimedOut() || res.Elapsed <= 0 {
			t.Errorf("%q, code %d, %+v; want %q", got, res.ExitCode, res, want)
		}
		files, err := s.ReadFiles(t.Context(), "**/*.txt")
		if err != nil || string(files["a/b.txt"]) != "hello\nmore\n" {
			t.Errorf("%q, %v", files, err)
		}
		if left, _ := os.ReadFile(filepath.Join(source, "a/b.txt")); string(left) != "hello\n" {
			t.Errorf("the source has changed: %q", left)
		}
		folder := filepath.Dir(s.Workspace())
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after Close %s still exists: %v", folder, err)
		}
		if _, err := s.Spawn(t.Context(), session.SpawnOptions{}); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("Spawn after Close: %v", err)
		}
		if _, err := r.Execute(t.Context(), sh("true")); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("Execute after Close: %v", err)
		}
	})
}

func TestExecute_setupEachTime(t *testing.T) {
	const setup = `
setup:
  commands: ["export A=1; echo commands", "mkdir -p d && cd d"]
  eval_commands: ["echo eval >&2; export B=2"]
  resume_commands: ["echo resume"]`
	places(t, func(t *testing.T, p *place) {
		for _, c := range []struct {
			kind  session.Kind
			spawn session.SpawnOptions
			want  string
		}{
			{session.Agent, session.SpawnOptions{Setup: "echo own"}, "commands\nown\n||1/ /d\n||exited"},
			{session.Evaluation, session.SpawnOptions{Setup: "echo own"}, "commands\nown\n|eval\n|1/2 /d\n||exited"},
			{session.Evaluation, session.SpawnOptions{DisableSetup: true, Setup: "echo own"}, "||/ \n||exited"},
		} {
			s := p.open(t, p.environment(t, setup), c.kind, nil)
			r := spawn(t, s, c.spawn)
			for range 2 { // the setup runs before each
				res := execute(t, r, sh(`D=${PWD#`+p.workdir(s)+`}; echo "$A/$B $D"`))
				if got := outputs(res); got != c.want || res.SetupEnded {
					t.Errorf("%s: %q, want %q", c.kind, got, c.want)
				}
			}
		}
	})
}

func TestExecute_setupEnds(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		for name, c := range map[string]struct {
			setup, want string
			code        int
			ended       bool
		}{
			"exits":               {`{commands: ["echo bye; exit 4"]}`, "bye\n||||exited", 4, true},
			"fails":               {`{commands: ["false", "echo next"]}`, "next\n||command\n||exited", 0, false},
			"fails with fast":     {`{commands: ["(exit 7)", "echo next"], fail_fast: true}`, "||||exited", 7, true},
			"takes too long":      {`{commands: ["echo slow; exec sleep 60"], timeout: 3s}`, "slow\n||||timed-out", -1, true},
			"merges both outputs": {`{commands: ["exec 2>&1"]}`, "||command\n||exited", 0, false},
		} {
			s := p.open(t, p.environment(t, "setup: "+c.setup), session.Agent, nil)
			res := execute(t, spawn(t, s, session.SpawnOptions{}), sh("echo command"))
			if got := outputs(res); got != c.want || res.ExitCode != c.code || res.SetupEnded != c.ended {
				t.Errorf("%s: %q, code %d, ended %v; want %q, %d, %v", name, got, res.ExitCode, res.SetupEnded, c.want, c.code, c.ended)
			}
		}
	})
}

func TestExecute_timeout(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		for _, setup := range []string{"[]", `["echo setup"]`} {
			s := p.open(t, p.environment(t, "setup: {commands: "+setup+"}"), session.Agent, nil)
			r := spawn(t, s, session.SpawnOptions{})
			res := execute(t, r, session.ExecuteOptions{Command: "echo so far; exec sleep 60", Timeout: 3e9})
			if res.Stdout.Text() != "so far\n" || !res.TimedOut() || res.ExitCode != -1 || res.SetupEnded {
				t.Errorf("set-up %s: %q, code %d, ended %v", setup, outputs(res), res.ExitCode, res.SetupEnded)
			}
			if res := execute(t, r, sh("echo on")); res.Stdout.Text() != "on\n" { // the container persists
				t.Errorf("afterwards: %q", outputs(res))
			}
		}
	})
}

func TestExecute_stdin(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t, `setup: {commands: ["cat; read -r x"]}`), session.Agent, nil)
		for _, opts := range []session.SpawnOptions{{}, {DisableSetup: true}} {
			r := spawn(t, s, opts)
			res := execute(t, r, session.ExecuteOptions{Command: "cat", Stdin: session.Chunks([]byte("one "), nil, []byte("two"))})
			if got := outputs(res); got != "||one two||exited" {
				t.Errorf("%q", got)
			}
		}
	})
}

func TestExecute_forgedMarker(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t, `setup: {commands: ["printf '\\036fumehood-AAAA'; echo setup"]}`), session.Agent, nil)
		r := spawn(t, s, session.SpawnOptions{})
		// The submission even writes the true marker of its own run, and that of the run before.
		const submission = `m=$(tr '\0' '\n' </proc/$$/cmdline | grep -ao "$(printf '\036')fumehood-[A-Z0-9]*" | tail -1)
echo begin; printf '%s' "$m" | tee -a seen; cat seen; printf '\036fumehood-BBBB'; echo end`
		for range 2 {
			res := execute(t, r, sh(submission))
			if out := res.Stdout.Text(); !strings.HasPrefix(out, "begin\n\x1efumehood-") || !strings.HasSuffix(out, "\x1efumehood-BBBBend\n") {
				t.Errorf("output of the command: %q", out)
			}
			if out := res.SetupStdout.Text(); out != "\x1efumehood-AAAAsetup\n" || res.SetupEnded {
				t.Errorf("output of the setup: %q", out)
			}
		}
	})
}

func TestExecute_variables(t *testing.T) {
	t.Setenv("FUMEHOOD_TEST_HOST", "host")
	t.Setenv("A", "host") // t.Setenv excludes parallel tests
	test := func(t *testing.T, p *place) {
		env := p.environment(t, "environment: {env: {A: spec, B: spec, C: spec}, include_os_env: true}")
		if p.name == "docker" {
			if _, err := p.open(t, env, session.Agent, nil).Spawn(t.Context(), session.SpawnOptions{}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "include_os_env") {
				t.Errorf("a spec file passes on the host's variables: %v", err)
			}
			env.AllowUnsafe = true
		}
		r := spawn(t, p.open(t, env, session.Agent, nil), session.SpawnOptions{Env: map[string]string{"B": "spawn", "C": "spawn"}})
		res := execute(t, r, session.ExecuteOptions{Command: "echo $FUMEHOOD_TEST_HOST $A $B $C", Env: map[string]string{"C": "call"}})
		if got := res.Stdout.Text(); got != "host spec spawn call\n" {
			t.Errorf("%q", got)
		}
		if text := p.log.String(); !strings.Contains(text, "FUMEHOOD_TEST_HOST") || strings.Contains(text, "=host") {
			t.Errorf("log without the names, or with values: %s", text)
		}
	}
	t.Run("docker", func(t *testing.T) { test(t, inDocker(t)) })
	t.Run("local", func(t *testing.T) { test(t, inLocal(t)) })
}

func TestExecute_commandLine(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		env := p.environment(t, `commands: {command: sh, agent_command: "echo agent:", entry_file: "{entry_file}.sh"}`)
		files := map[string]string{"it's.sh": "echo ran $0\n"}
		for kind, want := range map[session.Kind]string{session.Agent: "agent: it's.sh\n", session.Evaluation: "ran it's.sh\n"} {
			res := execute(t, spawn(t, p.open(t, env, kind, files), session.SpawnOptions{}), session.ExecuteOptions{Entry: "it's"})
			if got := res.Stdout.Text(); got != want {
				t.Errorf("%s: %q, want %q", kind, got, want)
			}
		}
	})
}

func TestRuntime_Stream(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t, `setup: {commands: ["echo s1; echo s2 >&2"]}`), session.Agent, nil)
		for _, disabled := range []bool{false, true} {
			r := spawn(t, s, session.SpawnOptions{DisableSetup: disabled})
			var setup, command string
			var last session.Event
			for ev, err := range r.Stream(t.Context(), sh("echo c1; echo c2 >&2; exit 5")) {
				if err != nil {
					t.Fatal(err)
				}
				if last.Result != nil {
					t.Error("an event after the result")
				}
				if ev.Phase == session.Setup {
					setup += string(ev.Data)
				} else {
					command += string(ev.Data)
				}
				last = ev
				if _, ok := r.Poll(); ok != (ev.Result != nil) {
					t.Errorf("Poll: got %v", ok)
				}
			}
			wantSetup := len("s1\ns2\n")
			if disabled {
				wantSetup = 0
			}
			if len(setup) != wantSetup || len(command) != len("c1\nc2\n") || strings.Contains(setup+command, "fumehood") {
				t.Errorf("disabled %v: set-up %q, command %q", disabled, setup, command)
			}
			if last.Result == nil || last.Result.ExitCode != 5 || last.Result.Stdout.Text() != "c1\n" || last.Result.Stderr.Text() != "c2\n" {
				t.Errorf("the last event: %+v", last)
			}
			for _, err := range r.Stream(t.Context(), session.ExecuteOptions{Command: "cat", Stdin: strings.NewReader("x")}) {
				if !errors.Is(err, session.ErrStdin) || !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "Start") {
					t.Errorf("Stream with a stdin: got %v", err)
				}
			}
			for _, err := range r.Stream(t.Context(), sh("echo first; exec sleep 60")) {
				if err != nil {
					t.Fatal(err)
				}
				break // kills it
			}
			if res := execute(t, r, sh("echo on")); res.Stdout.Text() != "on\n" {
				t.Errorf("afterwards: %q", outputs(res))
			}
		}
	})
}

func TestRuntime_Stream_left(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t), session.Agent, nil)
		r := spawn(t, s, session.SpawnOptions{})
		for _, left := range []bool{false, true} {
			execute(t, r, sh("exit 6"))
			ctx, cancel := context.WithCancel(t.Context())
			for _, err := range r.Stream(ctx, sh("echo here; exec sleep 60")) {
				if err != nil && !errors.Is(err, fumehood.ErrCanceled) {
					t.Error(err)
				}
				cancel()
				if left {
					break
				}
			}
			cancel()
			if code, ok := r.Poll(); code != -1 || !ok {
				t.Errorf("left %v: Poll: %d, %v", left, code, ok)
			}
		}
	})
}

func TestRuntime_busy(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t), session.Agent, nil)
		r := spawn(t, s, session.SpawnOptions{})
		if _, ok := r.Poll(); ok {
			t.Error("Poll returns a code before any command")
		}
		for ev, err := range r.Stream(t.Context(), sh("echo here; exec sleep 60")) {
			if err != nil {
				t.Fatal(err)
			}
			_, err1 := r.Execute(t.Context(), sh("true"))
			var err2 error
			for _, err2 = range r.Stream(t.Context(), sh("true")) {
			}
			_, err3 := s.FinishCheckpoint(t.Context())
			for _, err := range []error{err1, err2, err3, s.Reset(t.Context())} {
				if !errors.Is(err, session.ErrBusy) {
					t.Errorf("while %q runs: got %v", ev.Data, err)
				}
			}
			break
		}
		if res := execute(t, r, sh("exit 6")); res.ExitCode != 6 {
			t.Errorf("code %d", res.ExitCode)
		}
		if code, ok := r.Poll(); code != 6 || !ok {
			t.Errorf("Poll: %d, %v", code, ok)
		}
	})
}

func TestRuntime_ended(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t), session.Agent, nil)
		for name, end := range map[string]func(*session.Runtime, context.Context) error{"killed": (*session.Runtime).Kill, "cleaned up": (*session.Runtime).Cleanup} {
			r := spawn(t, s, session.SpawnOptions{})
			running := make(chan struct{})
			ended := make(chan error)
			go func() {
				var res *session.Result
				var err error
				var ev session.Event
				for ev, err = range r.Stream(t.Context(), sh("echo; exec sleep 60")) {
					if ev.Result == nil && err == nil {
						close(running)
					}
					res = ev.Result
				}
				if res != nil && res.Outcome != fumehood.Lost && res.Outcome != fumehood.Signaled {
					t.Errorf("%s: the running command: got %+v", name, res)
				}
				if want := name + " by the caller"; err == nil && (res == nil || res.Reason != want) {
					t.Errorf("%s: the running command: wanted the reason %q, got %+v", name, want, res)
				}
				ended <- err
			}()
			<-running
			for range 2 {
				if err := end(r, t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := <-ended; err != nil && fumehood.ClassOf(err) == nil {
				t.Errorf("%s: the running command: got error %v", name, err)
			}
			_, err := r.Execute(t.Context(), sh("true"))
			if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := r.Connection(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) {
				t.Errorf("%s: Connection: got %v", name, err)
			}
		}
	})
}

func TestSession_Exec(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		s := p.open(t, p.environment(t, `setup: {commands: ["echo setup"]}`), session.Evaluation, nil)
		for range 2 {
			res, err := s.Exec(t.Context(), session.SpawnOptions{}, sh("ls; echo x >> file; exit 2"))
			if err != nil {
				t.Fatal(err)
			}
			if res.ExitCode != 2 || res.SetupStdout.Text() != "setup\n" {
				t.Errorf("%q, code %d", outputs(res), res.ExitCode)
			}
		}
		if files, err := s.ReadFiles(t.Context(), "*"); err != nil || string(files["file"]) != "x\nx\n" {
			t.Errorf("%q, %v", files, err)
		}
	})
}

func TestExecute_canceled(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		for _, setup := range []string{"[]", `["echo setup"]`} {
			r := spawn(t, p.open(t, p.environment(t, "setup: {commands: "+setup+"}"), session.Agent, nil), session.SpawnOptions{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last error
			for _, last = range r.Stream(ctx, sh("echo running; exec sleep 60")) {
				cancel()
			}
			if !errors.Is(last, fumehood.ErrCanceled) {
				t.Errorf("Stream: got %v", last)
			}
			if _, err := r.Execute(ctx, sh("true")); !errors.Is(err, fumehood.ErrCanceled) {
				t.Errorf("Execute: got %v", err)
			}
			if res := execute(t, r, sh("echo on")); res.Stdout.Text() != "on\n" {
				t.Errorf("afterwards: %q", outputs(res))
			}
		}
	})
}
