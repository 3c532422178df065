package fake_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/conformance/fake"
	"github.com/fumehood/fumehood/provider/conformance/probe"
)

const probePath = "/usr/bin/fumehood-probe"

func TestTheFakeKeepsItsPromises(t *testing.T) {
	t.Parallel()
	provider := fake.New(fake.Options{
		Programs: map[string]fake.Program{probePath: runProbe},
		Users:    []fake.User{{Name: "alice", UID: 1000, GID: 1000}, {Name: "bob", UID: 2000, GID: 3000}},
		User:     "alice",
	})
	weaker := conformance.NoRlimits("programs are Go functions, without limits")
	maps.Copy(weaker, conformance.NoStop("a sandbox is in memory, and nobody looks into it later"))
	for _, name := range []string{
		"a command with a terminal has one of the size asked for, and one stream", "a terminal is 24 by 80 unless told otherwise",
		"a terminal can be resized while the command runs", "a terminal takes what is typed",
		"the end of input reaches a terminal's program behind an unfinished line too",
	} {
		weaker["tty/"+name] = noTerminals
	}
	conformance.Run(t, conformance.Harness{
		Column: "fake",
		Probe:  probePath,
		Users:  conformance.Users{Name: "bob", UID: 2000, GID: 3000},
		Start: func(t *testing.T) *fumehood.Sandbox {
			sb, err := provider.Start(t.Context(), fumehood.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			return sb
		},
		Weaker: weaker,
	})
}

func TestRun_Groups(t *testing.T) {
	t.Parallel()
	provider := fake.New(fake.Options{Programs: map[string]fake.Program{probePath: runProbe}})
	weaker := conformance.NoStop("a sandbox is in memory, and nobody looks into it later")
	var ran atomic.Int32
	for _, group := range []string{"exec", "stop"} {
		for _, promise := range conformance.Promises(group) {
			w := weaker[promise]
			w.Reason = cmp.Or(w.Reason, "unused")
			w.Check = func(*testing.T, *conformance.Case) { ran.Add(1) }
			weaker[promise] = w
		}
	}
	t.Cleanup(func() {
		if got, want := int(ran.Load()), len(conformance.Promises("stop")); got != want {
			t.Errorf("%d promises ran, want %d", got, want)
		}
	})
	conformance.Run(t, conformance.Harness{
		Column: "fake", Probe: probePath, Groups: []string{"stop"}, Weaker: weaker,
		Start: func(t *testing.T) *fumehood.Sandbox {
			sb, err := provider.Start(t.Context(), fumehood.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			return sb
		},
	})
}

var noTerminals = conformance.Weaker{
	Reason: "programs are Go functions, without terminals; ErrUnsupported",
	Check: conformance.Refuses(func(c *conformance.Case) fumehood.Cmd {
		cmd := c.Probe("append", c.Path("ran"), "x")
		cmd.TTY = true
		return cmd
	}),
}

func runProbe(ctx context.Context, p *fake.Proc) int {
	return probe.Main(ctx, probe.Env{
		Args: p.Args[1:], Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Environ: p.Env, System: system{ctx, p},
	})
}

// system is the probe's view of a fake program's sandbox.
type system struct {
	ctx context.Context
	p   *fake.Proc
}

func (s system) Dir() (string, error) { return s.p.Dir, nil }

func (s system) ID() (uid, gid int) { return s.p.UID, s.p.GID }

func (s system) Append(path string, data []byte) error { return s.p.AppendFile(path, data) }

func (s system) Exists(path string) bool {
	_, err := s.p.Stat(path)
	return err == nil
}

func (s system) Spawn(args []string, how probe.Spawn) error {
	wait, err := s.p.Spawn(s.ctx, append([]string{s.p.Args[0]}, args...)...)
	if err == nil && how.Wait {
		wait()
	}
	return err
}

func (s system) Raise(sig int) error {
	s.p.Raise(sig)
	return nil
}

func (s system) Ignore(sig int) { s.p.Ignore(sig) }

func (s system) Catch(sig int) (<-chan struct{}, error) { return s.p.Catch(sig), nil }

func (s system) Terminal() (rows, cols int, ok bool) { return 0, 0, false }

func (s system) Sparse(path string, size int64) error {
	return s.p.WriteFile(path, make([]byte, size), 0o644) // untouched pages take no room
}

func (s system) Special(kind, path string) error { return s.p.Special(kind, path) }

func (s system) Link(target, path string) error { return s.p.Symlink(target, path) }

func (s system) Lock(path string) error { return s.p.Chmod(path, 0) }

func TestAProgramThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	provider := fake.New(fake.Options{Programs: map[string]fake.Program{
		"deaf": func(context.Context, *fake.Proc) int {
			<-release
			return 0
		},
	}})
	sb, err := provider.Start(t.Context(), fumehood.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"deaf"}, Timeout: 1})
	if err != nil || res.Outcome != fumehood.TimedOut || !res.Leaked {
		t.Errorf("got %+v, %v, want an unkilled timeout", res, err)
	}
	if err := sb.Close(t.Context()); !errors.Is(err, fumehood.ErrInfrastructure) {
		t.Errorf("closing over a program that runs: %v", err)
	}
	close(release)
	if err := provider.Close(t.Context()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestWhatTheFakeCannotDoIsAnError(t *testing.T) {
	t.Parallel()
	provider := fake.New(fake.Options{})
	for name, c := range map[string]struct {
		spec  fumehood.Spec
		class error
	}{
		"mounts":       {fumehood.Spec{Mounts: []fumehood.Mount{{Host: "/a", Container: "/a"}}}, fumehood.ErrUnsupported},
		"compose":      {fumehood.Spec{Compose: &fumehood.Compose{Files: []string{"a"}}}, fumehood.ErrUnsupported},
		"unknown user": {fumehood.Spec{User: "nobody-of-that-name"}, fumehood.ErrConfig},
		"bad name":     {fumehood.Spec{Name: "UPPER"}, fumehood.ErrConfig},
	} {
		if _, err := provider.Start(t.Context(), c.spec); !errors.Is(err, c.class) {
			t.Errorf("%s: %v, want %v", name, err, c.class)
		}
	}
}
