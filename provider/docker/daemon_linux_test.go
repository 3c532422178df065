package docker_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
)

// ownDaemon connects to a daemon of the test's own. It checks at the end that no objects are left there.
func ownDaemon(t *testing.T) (*dockertest.Daemon, *docker.Provider) {
	t.Helper()
	d := dockertest.StartDaemon(t, busybox)
	t.Cleanup(func() {
		c, err := composesdk.Connect(context.WithoutCancel(t.Context()), composesdk.Options{Host: d.Host})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		left, err := c.Engine.Objects(context.WithoutCancel(t.Context()), owner.LabelSandbox)
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %+v, %v", left, err)
		}
	})
	p := newProvider(t, docker.Options{Host: d.Host, StateDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}.Sped(6))
	return d, p
}

// offline returns a Compose project without a network, whose service runs its own main process.
func offline(t *testing.T) *fumehood.Compose {
	t.Helper()
	text, err := os.ReadFile(ownMain(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "compose.yaml")
	if err := os.WriteFile(file, append(text, "    network_mode: none\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fumehood.Compose{Files: []string{file}}
}

// long starts a command that takes long.
func long(t *testing.T, sb fumehood.Sandbox) fumehood.Process {
	t.Helper()
	p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// cutOf waits for a command whose connection is gone.
func cutOf(t *testing.T, name string, p fumehood.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := p.Wait(ctx)
	if err != nil || res.Outcome != fumehood.Lost || res.CausedInside || res.Reason != cutReason {
		t.Errorf("%s: the command that ran ended with %+v, %v", name, res, err)
	}
}

// goesOn checks that a command of long still runs, and ends it.
func goesOn(t *testing.T, name string, p fumehood.Process) {
	t.Helper()
	if p.Info().Ended {
		t.Errorf("%s: the command that ran has ended", name)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if res, err := p.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled {
		t.Errorf("%s: the command that ran ended with %+v, %v", name, res, err)
	}
}

func TestDaemon_restarted(t *testing.T) {
	t.Parallel()
	d, p := ownDaemon(t)
	stream := newProvider(t, docker.Options{Host: d.Host, StateDir: t.TempDir(), NoSockets: true, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}.Sped(6))
	for name, end := range map[string]func(*dockertest.Daemon){
		"in good order": (*dockertest.Daemon).Stop,
		"by kill -9":    (*dockertest.Daemon).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			ofImage := start(t, p, fumehood.Spec{Image: busybox})
			ofProject := start(t, p, fumehood.Spec{Compose: offline(t)})
			byDaemon := start(t, stream, fumehood.Spec{Image: busybox})
			projectByDaemon := start(t, stream, fumehood.Spec{Compose: offline(t)})
			inImage, inProject := long(t, ofImage), long(t, ofProject)
			inStream, inProjectStream := long(t, byDaemon), long(t, projectByDaemon)
			works(t, "before", ofImage)
			byEngine, err := ofProject.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, ViaEngine: true})
			if err != nil {
				t.Fatal(err)
			}
			end(d)
			// Commands need the daemon only if the connection to their guest goes through it.
			works(t, "sandbox of an image, without a daemon", ofImage)
			works(t, "sandbox of a project, without a daemon", ofProject)
			cutOf(t, "sandbox of an image, through the daemon", inStream)
			cutOf(t, "sandbox of a project, through the daemon", inProjectStream)
			if _, err := p.Start(t.Context(), fumehood.Spec{Image: busybox}); !isOurs(err) {
				t.Errorf("a start without a daemon: %v", err)
			}
			if res, err := byEngine.Wait(t.Context()); !isOurs(err) { // whether its container lives is unknown
				t.Errorf("a command that the Engine ran: %+v, %v", res, err)
			}
			d.Start()
			for name, sb := range map[string]fumehood.Sandbox{
				"sandbox of an image": ofImage, "sandbox of a project": ofProject,
				"sandbox of an image, through the daemon": byDaemon, "sandbox of a project, through the daemon": projectByDaemon,
			} {
				works(t, name+", after", sb)
				works(t, name+", after, another user", sb.As("nobody"))
			}
			goesOn(t, "sandbox of an image", inImage)
			goesOn(t, "sandbox of a project", inProject)
			for name, sb := range map[string]fumehood.Sandbox{"of an image": byDaemon, "of a project": projectByDaemon} {
				conformance.Eventually(t, "the lost command in a sandbox "+name+" is killed", func() bool {
					res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "! ps -o args | grep '^sleep 1000'"}})
					return err == nil && res.Success()
				})
			}
			works(t, "a new sandbox", start(t, p, fumehood.Spec{Image: busybox}))
		})
	}
}

func TestDaemon_frozenBriefly(t *testing.T) {
	t.Parallel()
	const still = 6 * time.Second // slightly longer than the timeout of calls that the daemon answers from memory
	d, p := ownDaemon(t)
	sb := start(t, p, fumehood.Spec{Image: busybox})
	running, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "sleep 1; echo over"}})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "sleep 1; echo over"}, ViaEngine: true})
	if err != nil {
		t.Fatal(err)
	}
	closing := start(t, p, fumehood.Spec{Image: busybox})
	d.Freeze()
	thawed := time.AfterFunc(still, d.Thaw)
	defer thawed.Stop()
	began := time.Now()
	started, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		other, err := p.Start(t.Context(), fumehood.Spec{Image: busybox})
		if err == nil {
			err = other.Close(t.Context())
		}
		started <- err
	}()
	go func() { closed <- closing.Close(t.Context()) }()
	// Operations that do not need the daemon still work.
	works(t, "while it stands still", sb)
	if res, err := running.Wait(t.Context()); err != nil || !res.Success() || res.Stdout.Text() != "over\n" {
		t.Errorf("the command that ran: %+v, %v", res, err)
	}
	if took := time.Since(began); took > still {
		t.Errorf("took %v, so the daemon was asked", took)
	}
	// Operations that need it wait.
	if err := <-started; err != nil {
		t.Errorf("a start meanwhile: %v", err)
	}
	if err := <-closed; err != nil { // its timeout is shorter than the others'
		if !isOurs(err) {
			t.Errorf("a removal meanwhile: %v", err)
		}
		if err := closing.Close(t.Context()); err != nil {
			t.Errorf("a removal afterwards: %v", err)
		}
	}
	if res, err := direct.Wait(t.Context()); err != nil || !res.Success() || res.Stdout.Text() != "over\n" {
		t.Errorf("the Engine's exec: %+v, %v", res, err)
	}
	works(t, "afterwards", sb)
}

func TestDaemon_hangs(t *testing.T) {
	t.Parallel()
	d, p := ownDaemon(t)
	sb := start(t, p, fumehood.Spec{Image: busybox})
	d.Freeze()
	for name, call := range map[string]func(ctx context.Context) error{
		"start": func(ctx context.Context) error {
			_, err := p.Start(ctx, fumehood.Spec{Image: busybox, Name: "hung"})
			return err
		},
		"exec": func(ctx context.Context) error {
			_, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"true"}, ViaEngine: true})
			return err
		},
		"connection": func(ctx context.Context) error {
			_, err := sb.Connection(ctx)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		began := time.Now()
		err := call(ctx)
		if !errors.Is(err, fumehood.ErrCanceled) && !isOurs(err) || err == nil {
			t.Errorf("%s: got %v", name, err)
		}
		if took := time.Since(began); took > time.Minute { // includes the removal, which has a timeout of 5 s
			t.Errorf("%s: after %v", name, took)
		}
		cancel()
	}
	began := time.Now()
	err := sb.Close(t.Context())
	if !isOurs(err) && !errors.Is(err, fumehood.ErrCanceled) || !strings.Contains(err.Error(), sb.Info().Name) {
		t.Errorf("a removal that the daemon does not answer: %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the removal was given up after %v", took)
	}
	d.Kill()
	d.Start()
	conformance.Eventually(t, "the sandbox is removed", func() bool { return sb.Close(t.Context()) == nil })
	works(t, "a new sandbox", start(t, p, fumehood.Spec{Image: busybox}))
}
