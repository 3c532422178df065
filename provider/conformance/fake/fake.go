// Package fake is an in-memory provider: programs are Go functions, files live in a map, and nothing
// outside the test's process is touched. It keeps the same promises as a real provider, which the
// conformance suite checks, so code over fumehood.Provider can be unit-tested with it:
//
//	provider := fake.New(fake.Options{Programs: map[string]fake.Program{
//		"python3": func(ctx context.Context, p *fake.Proc) int {
//			fmt.Fprintln(p.Stdout, "42")
//			return 0
//		},
//	}})
//
// A goroutine cannot be killed. What ends a program is the end of its context, after which its input,
// its output and its files fail; a function that goes on all the same is left behind, its command ends
// without it a second later, and the Result says Leaked.
package fake

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/fumehood/fumehood"
)

// Program is what runs when a command names it. Its return value is the exit code, of which the lowest
// eight bits count. It should return soon after the end of ctx.
type Program func(ctx context.Context, p *Proc) int

// User is a user of the sandboxes. Its group has the same name.
type User struct {
	Name     string
	UID, GID int
}

// Options configure a Provider. The zero value has no programs, and runs commands as root.
type Options struct {
	// Programs by absolute path, or by name, which stands for /bin/name. Each is an executable file
	// there; a copy of that file runs the same program.
	Programs map[string]Program
	// Users there are besides root.
	Users []User
	// User is who commands run as, and who files are read and written as: a name of Users, or empty
	// for root.
	User string
	// Dir is the service's working directory; empty means /work.
	Dir string
	// Env is the environment of every command, with PATH and HOME set unless it says otherwise.
	Env map[string]string
}

// Provider is the in-memory provider. Make one with New.
type Provider struct {
	opts  Options
	mu    sync.Mutex
	boxes map[*box]*fumehood.Sandbox
}

var _ fumehood.Provider = (*Provider)(nil)

// New returns a provider. It does nothing yet, so it cannot fail.
func New(opts Options) *Provider {
	if opts.Dir == "" {
		opts.Dir = "/work"
	}
	return &Provider{opts: opts, boxes: map[*box]*fumehood.Sandbox{}}
}

// Name returns "fake".
func (p *Provider) Name() string { return "fake" }

// Start makes a sandbox with one service, "default". Spec's Image is reported by its ServiceInfo, and it,
// Network and Limits change nothing: there is nothing to isolate. Mounts and Compose are an
// ErrUnsupported.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (*fumehood.Sandbox, error) {
	const op = "start sandbox"
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrCancelled, Err: fumehood.Ended(ctx)}
	}
	if len(spec.Mounts) > 0 {
		return nil, &fumehood.Error{
			Op: op, Class: fumehood.ErrUnsupported,
			Err: fmt.Errorf("the fake provider has no mounts"), Hint: "write the files into the sandbox",
		}
	}
	if spec.Compose != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the fake provider has no Compose projects")}
	}
	if spec.Name == "" {
		spec.Name = "fumehood-" + strings.ToLower(rand.Text()[:12])
	}
	end := spec.Recorder().Phase("start")
	b, err := newBox(p.opts, spec)
	end(err)
	if err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	b.provider = p
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.boxes {
		if other.info.Name == b.info.Name {
			return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("a sandbox %q is there already", b.info.Name)}
		}
	}
	sb := fumehood.NewSandbox(b, spec)
	p.boxes[b] = sb
	return sb, nil
}

// Close closes the sandboxes that are still open, except kept ones.
func (p *Provider) Close(ctx context.Context) error {
	p.mu.Lock()
	var open []*fumehood.Sandbox
	for b, sb := range p.boxes {
		if !b.keep {
			open = append(open, sb)
		}
	}
	p.mu.Unlock()
	for _, sb := range open {
		if err := sb.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// box is the backend of one sandbox, and of its only service.
type box struct {
	provider *Provider
	info     fumehood.Info
	keep     bool
	env      map[string]string
	programs map[string]Program // by absolute path
	users    []User
	cred     cred // of commands and files by default
	fs       *fileSystem

	mu     sync.Mutex
	closed bool
	procs  map[*Proc]struct{} // every goroutine that runs
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func newBox(opts Options, spec fumehood.Spec) (*box, error) {
	b := &box{
		keep: spec.Keep, env: map[string]string{"PATH": defaultPath, "HOME": "/"}, programs: map[string]Program{},
		users: append([]User{{Name: "root"}}, opts.Users...), fs: newFileSystem(), procs: map[*Proc]struct{}{},
	}
	for _, env := range []map[string]string{opts.Env, spec.Env} {
		for k, v := range env {
			b.env[k] = v
		}
	}
	user, dir := opts.User, opts.Dir
	if spec.User != "" {
		user = spec.User
	}
	if spec.Dir != "" {
		dir = spec.Dir
	}
	var err error
	if b.cred, err = b.lookUp(user); err != nil {
		return nil, err
	}
	if err := b.furnish(opts.Programs, dir); err != nil {
		return nil, err
	}
	b.info = fumehood.Info{Name: spec.Name, Provider: "fake", Services: []fumehood.ServiceInfo{
		{Name: "default", Image: spec.Image, User: user, Dir: dir},
	}}
	return b, nil
}

// furnish makes the first files: /dev/null, /tmp, the programs, and the working directory.
func (b *box) furnish(programs map[string]Program, dir string) error {
	for _, d := range []string{"/dev", "/tmp", "/bin"} {
		if err := b.fs.mkdirAll(root, d); err != nil {
			return err
		}
	}
	b.fs.chmod("/tmp", 0o777)
	if err := b.fs.special(root, "/dev/null", "device"); err != nil {
		return err
	}
	for name, program := range programs {
		file := name
		if !strings.Contains(name, "/") {
			file = "/bin/" + name
		}
		if !path.IsAbs(file) || program == nil {
			return fmt.Errorf("the program %q has no absolute path, or no function", name)
		}
		b.programs[file] = program
		if err := b.fs.write(root, file, []byte(programMark+file), fumehood.WriteOptions{Mode: 0o755}, nil); err != nil {
			return err
		}
	}
	if err := b.fs.mkdirAll(root, dir); err != nil {
		return err
	}
	b.fs.chown(dir, b.cred)
	return nil
}

func (b *box) Info() fumehood.Info { return b.info }

func (b *box) Service(string) fumehood.ServiceBackend { return b }

// Close ends every goroutine of the sandbox, also those that outlived their command.
func (b *box) Close(context.Context) error {
	b.mu.Lock()
	b.closed = true
	var running []*Proc
	for p := range b.procs {
		running = append(running, p)
	}
	b.mu.Unlock()
	for _, p := range running {
		p.signal(sigKill)
	}
	if !joined(running) {
		return fmt.Errorf("%d programs of the fake sandbox do not end with their context", len(running))
	}
	b.provider.mu.Lock()
	defer b.provider.mu.Unlock()
	delete(b.provider.boxes, b)
	return nil
}
