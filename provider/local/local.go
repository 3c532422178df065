// Package local is a provider without isolation, for trusted code and for tests. Commands are processes of the host.
// They run as the user of this process, each in its sandbox's private folder. A command can read and change
// everything that this user can, and can reach the network.
//
// A sandbox is a folder of mode 0700, <StateDir>/<name>, which Close removes:
//
//	owner           the process that created it, for cleanup; a kept sandbox also has the file kept
//	work            the service's directory and the commands' HOME
//	tmp             the commands' TMPDIR
//	fumehood-guest  the program that supervises the commands, if there is one
//
// Absolute paths are the host's own.
//
// On Linux on amd64 and arm64, a process supervises each sandbox's commands. It is the same guest that Docker's
// containers have. A kill of a command kills all its descendants, whatever they have done to escape. Close also kills
// processes that have outlived their command. If the program that uses this package dies, even by SIGKILL, its
// sandboxes' processes are killed. Their folders are left to Cleanup. Programs with another user's rights, such as
// sudo's, cannot be killed. The Result of a killed command then has Leaked set, and Close fails. The supervisor runs
// as the same user, so a command can kill it, which makes the sandbox unusable. Results never have OutOfMemory,
// limits or memory peaks, since the sandbox has no control group of its own.
//
// On other systems, a kill reaches the process group of the command (on Windows, its first process only). Processes
// that left the group, for example by setsid, survive, so the Result of a killed command always has Leaked set.
// Children that outlive their command are not killed, not even by Close, which removes their folder. The Result has
// no Usage, and a command with Rlimits is an ErrUnsupported.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// Options configure a Provider. The zero value is valid.
type Options struct {
	// Logger receives, once, a warning that nothing is isolated. Nil disables logging.
	Logger *slog.Logger
	// StateDir contains the sandboxes' folders. Empty means $XDG_STATE_HOME/fumehood/local, or
	// .local/state/fumehood/local in the user's home.
	StateDir string
}

// Provider runs sandboxes as host processes. It is created by New.
type Provider struct {
	log      *slog.Logger
	stateDir string
	warned   sync.Map // the loggers that have received the warning

	open box.Set

	guestMu sync.Mutex
	guest   []byte // the guest's program, unpacked and checked; nil before its first use
}

var _ fumehood.Provider = (*Provider)(nil)

// New returns a provider. The error is an ErrConfig if no directory for the state can be determined.
func New(opts Options) (*Provider, error) {
	dir := opts.StateDir
	if dir == "" {
		var err error
		if dir, err = owner.StateDir("local"); err != nil {
			return nil, &fumehood.Error{Op: "make local provider", Class: fumehood.ErrConfig, Err: err, Hint: "set HOME or XDG_STATE_HOME"}
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, &fumehood.Error{Op: "make local provider", Class: fumehood.ErrConfig, Err: err}
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Provider{log: log, stateDir: dir}, nil
}

// Name returns "local".
func (p *Provider) Name() string { return "local" }

// Start creates the sandbox's folder and starts the supervisor, if there is one. It supports Spec's Name, Env, Dir
// (an existing directory of the host), Keep, Labels, ConfigFile, Journal and Logger. If any other field is set, the
// error is an ErrUnsupported. With a supervisor, the error is an ErrConfig if StateDir is on a file system mounted
// noexec, since the supervisor's program is run from there.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	starting, place, err := p.open.Begin(ctx, "")
	if err != nil {
		return nil, err
	}
	defer place.Settle()
	log := cmp.Or(spec.Logger, p.log)
	if _, warned := p.warned.LoadOrStore(log, true); !warned {
		log.Warn("the local provider isolates nothing: commands run as host processes with all rights of this user")
	}
	sb, err := provider.Start(starting, spec, func(ctx context.Context, spec fumehood.Spec) (provider.Backend, error) {
		return p.newSandbox(ctx, spec, place)
	})
	switch {
	case err != nil && box.IsClosed(starting):
		return nil, box.ClosedError()
	case err != nil:
		return nil, err
	}
	place.Hold(sb.Close)
	return sb, nil
}

// checkSpec returns an error if spec has a field that host processes do not support.
func checkSpec(spec fumehood.Spec) error {
	set := func(limit float64) bool { return limit != 0 && limit != fumehood.NoLimit }
	var feature, hint string
	switch {
	case spec.Compose != nil:
		feature, hint = "run a Compose project", "use the docker provider"
	case spec.Image != "", spec.Images != nil:
		feature, hint = "run an image", "name none, or use the docker provider"
	case spec.User != "":
		feature, hint = "run commands as another user", "name none: commands run as the user of this process"
	case spec.Network.Mode != "":
		feature, hint = "choose a network", "name none: host processes always have the host's network"
	case set(float64(spec.Limits.Memory)) || set(spec.Limits.CPUs) || set(float64(spec.Limits.PIDs)) || set(float64(spec.Limits.Disk)):
		feature, hint = "limit memory, CPUs, processes or the disk", "set no limits, or use the docker or native provider"
	case spec.ShmSize != 0:
		feature, hint = "set the size of /dev/shm", "leave it out: commands use the host's"
	case len(spec.Tmpfs) > 0:
		feature, hint = "mount a tmpfs", "leave it out: commands use the host's folders"
	case spec.Seccomp != "":
		feature, hint = "choose a seccomp profile", "name none: the host processes' system calls are not filtered"
	case spec.Runtime != "":
		feature, hint = "choose a container runtime", "name none: host processes have no runtime"
	case len(spec.Ports) > 0:
		feature, hint = "publish ports", "publish none: commands listen on the host's own ports"
	case spec.Binary != "":
		feature, hint = "use a container CLI", "name none"
	case len(spec.Mounts) > 0:
		feature, hint = "mount paths", "use the host's paths: commands can access all of them"
	default:
		return nil
	}
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("the local provider cannot " + feature), Hint: hint,
	}
}

func (p *Provider) newSandbox(ctx context.Context, spec fumehood.Spec, place *box.Place) (provider.Backend, error) {
	if spec.Dir != "" {
		if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
			return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("working directory %s is not a directory of the host", spec.Dir)}
		}
	}
	name := spec.Name
	folder, err := owner.MakeFolder(p.stateDir, name, spec.Keep)
	if errors.Is(err, fs.ErrExist) {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("sandbox %q already exists: %s", name, filepath.Join(p.stateDir, name))}
	}
	if err != nil {
		return nil, err
	}
	b := &sandbox{provider: p, place: place, folder: folder, keep: spec.Keep}
	if err := b.fill(ctx, spec.Env); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	dir := b.work()
	if spec.Dir != "" {
		dir = spec.Dir
	}
	b.info = fumehood.Info{Name: name, Provider: p.Name(), Services: []fumehood.ServiceInfo{{Name: "default", Dir: dir}}}
	return b, nil
}

func (b *sandbox) work() string { return filepath.Join(b.folder, "work") }

// fill creates the sandbox's directories, and what runs the commands.
func (b *sandbox) fill(ctx context.Context, more map[string]string) (err error) {
	tmp := filepath.Join(b.folder, "tmp")
	for _, d := range []string{b.work(), tmp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	env := baseEnv(b.work(), tmp)
	maps.Copy(env, more)
	_, b.term = env["TERM"]
	b.commands, err = b.provider.newCommands(ctx, b.folder, env)
	return err
}

// baseEnv returns the environment of commands. Of the host's variables it has only PATH and LANG, and on Windows
// those without which programs do not start.
func baseEnv(home, tmp string) map[string]string {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
		"HOME": home, "TMPDIR": tmp,
	}
	inherited := []string{"PATH", "LANG"}
	if runtime.GOOS == "windows" {
		inherited = append(inherited, "SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "TEMP", "TMP")
	}
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	return env
}

// Close ends starts, and closes the sandboxes that are still open. For kept sandboxes it kills the commands, and
// leaves the folder. Afterwards none can be started.
func (p *Provider) Close(ctx context.Context) error { return p.open.Close(context.WithoutCancel(ctx)) }
