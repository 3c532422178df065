package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/fake"
)

func start(t *testing.T, p *fake.Provider) fumehood.Sandbox {
	t.Helper()
	sb, err := p.Start(t.Context(), fumehood.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestExec_ignoresContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := fake.New(fake.Options{Programs: map[string]fake.Program{
		"deaf": func(context.Context, *fake.Proc) int {
			<-release
			return 0
		},
	}})
	sb := start(t, p)
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"deaf"}, Timeout: 1})
	if err != nil || res.Outcome != fumehood.TimedOut || !res.Leaked {
		t.Errorf("got %+v, %v, want a leaked timeout", res, err)
	}
	if err := sb.Close(t.Context()); !errors.Is(err, fumehood.ErrInfrastructure) {
		t.Errorf("closing with a running program: %v", err)
	}
	close(release)
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestProgram_files(t *testing.T) {
	t.Parallel()
	sb := start(t, fake.New(fake.Options{Programs: map[string]fake.Program{
		"copy": func(_ context.Context, p *fake.Proc) int {
			data, err := p.ReadFile("in/a")
			if err == nil {
				err = p.WriteFile("/out", data)
			}
			fmt.Fprintln(p.Stderr, err)
			_, _ = io.Copy(p.Stdout, p.Stdin)
			return 256 + 3
		},
		"hang": func(ctx context.Context, _ *fake.Proc) int {
			<-ctx.Done()
			return 0
		},
	}}))
	ctx := t.Context()
	if err := sb.WriteFile(ctx, "in/a", []byte("content"), fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Start(ctx, fumehood.Cmd{Args: []string{"copy"}, StdinPipe: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("typed")); err != nil {
		t.Error(err)
	}
	if err := p.CloseStdin(); err != nil {
		t.Error(err)
	}
	if n, err := p.Write([]byte("late")); n != 0 || !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a write after the end of standard input: %d, %v", n, err)
	}
	if res, err := p.Wait(ctx); err != nil || res.ExitCode != 3 || res.Stdout.Text() != "typed" || res.Stderr.Text() != "<nil>\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if got, err := sb.ReadFile(ctx, "/out", fumehood.ReadOptions{}); err != nil || string(got) != "content" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := fstest.TestFS(sb.FS(ctx, "/"), "work/in/a", "out"); err != nil {
		t.Error(err)
	}
	archive, err := sb.Download(ctx, "in")
	if err == nil {
		err = sb.Upload(ctx, "/again", archive)
	}
	if got, rerr := fs.ReadFile(sb.FS(ctx, "/again"), "in/a"); err != nil || rerr != nil || string(got) != "content" {
		t.Errorf("got %q, %v, %v", got, err, rerr)
	}
	if err := sb.Rename(ctx, "/out", "/moved"); err != nil {
		t.Error(err)
	}
	if err := sb.Mkdir(ctx, "dir", fumehood.MkdirOptions{}); err != nil {
		t.Error(err)
	}
	if list, err := sb.List(ctx, "dir"); err != nil || len(list) != 0 {
		t.Errorf("of a new directory: %v, %v", list, err)
	}
	for name, c := range map[string]struct{ err, want error }{
		"mkdir twice":           {sb.Mkdir(ctx, "dir", fumehood.MkdirOptions{}), fumehood.ErrExists},
		"mkdir below a file":    {sb.Mkdir(ctx, "/moved/x", fumehood.MkdirOptions{}), fumehood.ErrNotDirectory},
		"rename of a directory": {sb.Rename(ctx, "dir", "other"), fumehood.ErrUnsupported},
		"rename to a directory": {sb.Rename(ctx, "/moved", "dir"), fumehood.ErrIsDirectory},
		"remove what has files": {sb.Remove(ctx, "in", fumehood.RemoveOptions{}), fumehood.ErrNotEmpty},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if err := sb.Remove(ctx, "in", fumehood.RemoveOptions{Recursive: true}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"in/a", "/out"} {
		if _, err := sb.Stat(ctx, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err = sb.Start(ctx, fumehood.Cmd{Args: []string{"hang"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(ctx); err != nil {
		t.Error(err)
	}
	if res, err := p.Wait(ctx); err != nil || res.Outcome != fumehood.Signaled || res.Signal != 9 {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestExec_env(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{Programs: map[string]fake.Program{"env": func(_ context.Context, p *fake.Proc) int {
		fmt.Fprint(p.Stdout, p.Env)
		return 0
	}}})
	sb, err := p.Start(t.Context(), fumehood.Spec{Env: map[string]string{"B": "1", "C": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"env"}, Env: map[string]string{"B": "3", "A": "4"}}); err != nil || res.Stdout.Text() != "[A=4 B=3 C=2]" {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestProvider_unsupported(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{Programs: map[string]fake.Program{"true": func(context.Context, *fake.Proc) int { return 0 }}})
	for name, c := range map[string]struct {
		spec  fumehood.Spec
		class error
	}{
		"mounts":     {fumehood.Spec{Mounts: []fumehood.Mount{{Host: "/a", Container: "/a"}}}, fumehood.ErrUnsupported},
		"compose":    {fumehood.Spec{Compose: &fumehood.Compose{Files: []string{"a"}}}, fumehood.ErrUnsupported},
		"other user": {fumehood.Spec{User: "alice"}, fumehood.ErrUnsupported},
		"bad name":   {fumehood.Spec{Name: "UPPER"}, fumehood.ErrConfig},
	} {
		if _, err := p.Start(t.Context(), c.spec); !errors.Is(err, c.class) {
			t.Errorf("%s: %v, want %v", name, err, c.class)
		}
	}
	sb := start(t, p)
	for name, cmd := range map[string]fumehood.Cmd{
		"terminals": {TTY: true}, "users": {User: "alice"}, "limits": {Rlimits: fumehood.Rlimits{OpenFiles: 1}}, "processor time": {CPUTime: 1},
	} {
		cmd.Args = []string{"true"}
		if res, err := sb.Exec(t.Context(), cmd); !errors.Is(err, fumehood.ErrUnsupported) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if err := sb.Symlink(t.Context(), "a", "b"); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("links: %v", err)
	}
}
