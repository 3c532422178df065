// Package local is the provider of sandboxes that are none: commands are processes of the host, run as
// the user who runs this, in a private folder each. It is for code that is trusted and for tests. It
// isolates nothing: a command can read and change whatever its user can, and reach the network.
//
// A sandbox is a folder of mode 0700, <StateDir>/<name>, which Close removes:
//
//	owner          the process that made it, for clean-up; kept: there when the sandbox is a kept one
//	work           the service's directory and the commands' HOME
//	tmp            the commands' TMPDIR
//	fumehood-guest  the program that supervises the commands, where there is one
//
// Absolute paths are the host's own.
//
// On Linux on amd64 and arm64, each sandbox has a process that supervises its commands, the same guest as
// docker's containers have. A command that is killed ends with all its descendants, whatever they have
// done to get away, and so does, by Close, what outlived a command that had ended by itself. When the
// program that uses this package dies, by SIGKILL too, its sandboxes' processes end; their folders are
// left to Cleanup. Out of reach are programs that run with another user's rights, such as sudo's: a
// killed command's Result then says Leaked, and Close fails. The supervisor is a process of the same
// user: a command that kills it loses the sandbox. OutOfMemory is never told, nor are limits and peaks,
// for there is no control group of the sandbox's own.
//
// On other systems, where a command is killed its process group is (on Windows, its first process alone).
// What has left that group, by setsid, lives on, so a killed command's Result always says Leaked.
// Children that outlive a command that ended by itself are left alone, by Close too; they find their
// folder gone. The Result has no Usage, and Cmd.Rlimits are an ErrUnsupported.
package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// Options configure a Provider. The zero value will do.
type Options struct {
	// Logger logs, once, that nothing is isolated. Nil logs nothing.
	Logger *slog.Logger
	// StateDir holds the sandboxes' folders. Empty means $XDG_STATE_HOME/fumehood/local, or
	// .local/state/fumehood/local in the user's home.
	StateDir string
}

// Provider makes sandboxes of host processes. Make one with New.
type Provider struct {
	log      *slog.Logger
	stateDir string
	warned   sync.Map // of the loggers that have logged it

	mu    sync.Mutex
	boxes map[*box]fumehood.Sandbox

	guestMu sync.Mutex
	guest   []byte // the guest's program, unpacked and checked; nil before it is first needed
}

var _ fumehood.Provider = (*Provider)(nil)

// New returns a provider. Its error is an ErrConfig: there is no place for the state.
func New(opts Options) (*Provider, error) {
	dir := opts.StateDir
	if dir == "" {
		var err error
		if dir, err = owner.StateDir("local"); err != nil {
			return nil, &fumehood.Error{Op: "make local provider", Class: fumehood.ErrConfig, Err: err, Hint: "set StateDir"}
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
	return &Provider{log: log, stateDir: dir, boxes: map[*box]fumehood.Sandbox{}}, nil
}

// Name returns "local".
func (p *Provider) Name() string { return "local" }

// Start makes a folder and, where commands are supervised, starts their supervisor. Spec's Name, Env, Dir
// (a folder of the host that exists), Keep, Labels, ConfigFile, Journal and Logger are honoured; every other field that is set is an
// ErrUnsupported. A StateDir on a file system that is mounted noexec is an ErrConfig where there is a
// supervisor, since its program is run from there.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	const op = "start sandbox"
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := supported(spec); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrCancelled, Err: fumehood.Ended(ctx)}
	}
	log := cmp.Or(spec.Logger, p.log)
	if _, warned := p.warned.LoadOrStore(log, true); !warned {
		log.Warn("the local provider isolates nothing: commands run as host processes with all rights of this user")
	}
	if spec.Name == "" {
		spec.Name = "fumehood-" + strings.ToLower(rand.Text()[:12])
	}
	rec := provider.NewRecorder(&spec)
	end := rec.Phase("start")
	b, err := p.newBox(ctx, spec)
	end(err)
	if err != nil {
		var ours *fumehood.Error
		if errors.As(err, &ours) {
			ours.Op = op
			return nil, rec.Failed(ours)
		}
		return nil, rec.Failed(&fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: err})
	}
	sb := provider.New(b, spec, rec)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.boxes[b] = sb
	return sb, nil
}

// supported refuses what host processes cannot be given.
func supported(spec fumehood.Spec) error {
	set := func(limit float64) bool { return limit != 0 && limit != fumehood.NoLimit }
	var field, hint string
	switch {
	case spec.Compose != nil:
		field, hint = "Compose", "use the docker provider"
	case spec.Image != "", spec.Images != nil:
		field, hint = "Image", "leave it empty, or use the docker provider"
	case spec.User != "":
		field, hint = "User", "leave it empty: commands run as the user who runs this"
	case spec.Network.Mode != "":
		field, hint = "Network", "leave it empty: the host's network cannot be kept from a host process"
	case set(float64(spec.Limits.Memory)) || set(spec.Limits.CPUs) || set(float64(spec.Limits.PIDs)):
		field, hint = "Limits", "leave them zero, or use the docker provider"
	case spec.Runtime != "":
		field, hint = "Runtime", "leave it empty: host processes have none"
	case len(spec.Ports) > 0:
		field, hint = "Ports", "leave them out: what listens, listens on the host"
	case spec.Binary != "":
		field, hint = "Binary", "leave it empty: there is no container to get into"
	case len(spec.Mounts) > 0:
		field, hint = "Mounts", "use the host's paths: commands see them all"
	default:
		return nil
	}
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrUnsupported,
		Err: fmt.Errorf("the local provider cannot honour the field %s", field), Hint: hint,
	}
}

func (p *Provider) newBox(ctx context.Context, spec fumehood.Spec) (*box, error) {
	if spec.Dir != "" {
		if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
			return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the working directory %s is no directory of the host", spec.Dir)}
		}
	}
	name := spec.Name
	folder, err := owner.MakeFolder(p.stateDir, name, spec.Keep)
	if errors.Is(err, fs.ErrExist) {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("a sandbox %q is there already: %s", name, filepath.Join(p.stateDir, name))}
	}
	if err != nil {
		return nil, err
	}
	b := &box{provider: p, folder: folder, keep: spec.Keep}
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

func (b *box) work() string { return filepath.Join(b.folder, "work") }

// fill makes the folder's own folders, and what runs the commands.
func (b *box) fill(ctx context.Context, more map[string]string) (err error) {
	tmp := filepath.Join(b.folder, "tmp")
	for _, d := range []string{b.work(), tmp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	env := baseEnv(b.work(), tmp)
	maps.Copy(env, more)
	b.commands, err = b.provider.newCommands(ctx, b.folder, env)
	return err
}

// baseEnv is the environment of commands. Of the host's it has PATH and LANG only, and on Windows what
// programs do not start without.
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

// Close closes the sandboxes that are still open. Of kept ones the commands end, and the folder stays.
func (p *Provider) Close(ctx context.Context) error {
	p.mu.Lock()
	var open []fumehood.Sandbox
	for _, sb := range p.boxes {
		open = append(open, sb)
	}
	p.mu.Unlock()
	var errs []error
	for _, sb := range open {
		errs = append(errs, sb.Close(ctx))
	}
	return errors.Join(errs...)
}
