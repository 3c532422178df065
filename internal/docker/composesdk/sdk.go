// Package composesdk is the only importer of the Compose SDK and the docker CLI's libraries. It finds the daemon as the
// docker CLI does, and uses the SDK in process to create projects.
package composesdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/docker/cli/cli/command"
	"github.com/docker/cli/cli/flags"
	"github.com/docker/compose/v5/pkg/api"
	sdk "github.com/docker/compose/v5/pkg/compose"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
)

// Version returns the SDK's version, which it also writes to container labels; empty if the SDK does not know it.
func Version() string { return api.ComposeVersion }

// Options selects the daemon. The zero value finds it as the docker CLI does.
type Options struct {
	Host    string // in the format of DOCKER_HOST; empty means to search
	Context string // name of a docker context; excludes Host
	Logger  *slog.Logger
	// Latency is called with the time that the daemon took to answer a request that it serves from memory. It is called
	// concurrently. Nil disables the reports.
	Latency func(time.Duration)
	// Seccomp is the containers' seccomp profile, and Profiles are others by name: see engine.GuardOptions.
	Seccomp  string
	Profiles map[string]string
	// Unheld is called with settings of a container that the daemon does not enforce: see engine.GuardOptions.
	Unheld  func(labels map[string]string, warnings []string) error
	Speedup engine.Speedup // of the calls' timeouts
}

// SDK creates Compose projects on one daemon.
type SDK struct {
	Engine *engine.Client
	// Found identifies the daemon for another process with the same environment.
	Found Options
	// Named reports whether options, a variable or a docker context name the daemon.
	Named bool

	cli     *command.DockerCli
	service api.Compose
}

// Connect finds the daemon. It tries Options, DOCKER_HOST, the current docker context, the socket of the rootless
// daemon, and the default socket, in this order. It does not contact the daemon yet.
func Connect(ctx context.Context, opts Options) (*SDK, error) {
	secret, err := owner.Secret()
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, opts, secret)
	if err != nil {
		return nil, &fumehood.Error{
			Op: "find the Docker daemon", Class: fumehood.ErrConfig, Err: err,
			Hint: "check DOCKER_HOST, DOCKER_CONTEXT and `docker context ls`",
		}
	}
	return c, nil
}

func connect(ctx context.Context, opts Options, secret engine.Secret) (*SDK, error) {
	if opts.Host != "" && opts.Context != "" {
		return nil, errors.New("a host and a context exclude each other")
	}
	warnings := logWriter{opts.Logger}
	cli, err := command.NewDockerCli(
		command.WithBaseContext(context.WithoutCancel(ctx)),
		command.WithInputStream(io.NopCloser(strings.NewReader(""))),
		command.WithOutputStream(io.Discard),
		command.WithErrorStream(warnings),
	)
	if err != nil {
		return nil, err
	}
	clientOpts := flags.NewClientOptions()
	clientOpts.Context = opts.Context
	if opts.Host != "" {
		clientOpts.Hosts = []string{opts.Host}
	}
	if err := cli.Initialize(clientOpts); err != nil {
		return nil, err
	}
	named := cli.CurrentContext() != command.DefaultContextName || opts.Host != "" || os.Getenv("DOCKER_HOST") != ""
	if !named {
		if socket := rootlessSocket(); socket != "" {
			clientOpts.Hosts = []string{socket}
			if err := cli.Initialize(clientOpts); err != nil {
				return nil, err
			}
		}
	}
	// The docker CLI's client exits the process if the endpoint cannot be resolved, so this is checked first.
	client, err := command.NewAPIClientFromFlags(clientOpts, cli.ConfigFile())
	if err != nil {
		return nil, err
	}
	api := engine.Guard(client, engine.GuardOptions{Logger: opts.Logger, Latency: opts.Latency, Seccomp: opts.Seccomp, Profiles: opts.Profiles, Unheld: opts.Unheld, Speedup: opts.Speedup, Secret: secret})
	if err := command.WithAPIClient(api)(cli); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	// The SDK would pass the proxies of the user's configuration, including passwords, to every container.
	cli.ConfigFile().Proxies = nil
	service, err := sdk.NewComposeService(cli, sdk.WithPrompt(sdk.AlwaysOkPrompt()))
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	found := Options{Context: cli.CurrentContext()}
	if found.Context == command.DefaultContextName {
		found = Options{Host: opts.Host}
	}
	return &SDK{Engine: engine.New(api, client.DaemonHost(), opts.Speedup, secret), Found: found, Named: named, cli: cli, service: service}, nil
}

// rootlessSocket returns the address of the rootless daemon's socket, or "" if there is no such socket.
func rootlessSocket() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if runtime.GOOS != "linux" || !filepath.IsAbs(dir) { // the specification of this variable ignores relative paths
		return ""
	}
	socket := filepath.Join(dir, "docker.sock")
	if info, err := os.Stat(socket); err != nil || info.Mode()&os.ModeSocket == 0 {
		return ""
	}
	return "unix://" + socket
}

// logWriter logs what the docker CLI's libraries print.
type logWriter struct{ logger *slog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	if w.logger != nil {
		w.logger.Warn("docker configuration", "message", strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// Settle makes the SDK ask the daemon for its version now. Otherwise the SDK does so in its first call, and sets the
// API version of the client while other goroutines may use it.
func (c *SDK) Settle() { _ = c.cli.Client() }

// Auth returns the registry credentials for an image, from the docker CLI's configuration and credential helpers; empty
// if there are none.
func (c *SDK) Auth(image string) (string, error) {
	auth, err := command.RetrieveAuthTokenFromImage(c.cli.ConfigFile(), image)
	if err != nil {
		return "", &fumehood.Error{Op: "find credentials for image " + image, Class: fumehood.ErrConfig, Err: err}
	}
	return auth, nil
}

// Create creates the project's containers, networks and volumes, and starts nothing. All created objects carry the
// project's labels, even after an error. If ctx ends, the object in progress is still created. Otherwise the Engine
// would continue, and we would not know what it created.
//
// A project that is only a container, of the image with an ID, is created without the SDK. If a container of its name
// exists, it is left as it is, as the SDK does.
func (c *SDK) Create(ctx context.Context, p *compose.Project, image string) error {
	if opts, ok := single(p, image); ok {
		for _, v := range p.Types().Volumes {
			there, err := c.Engine.HasVolume(ctx, v.Name)
			if err == nil && !there { // the Engine would make it
				err = &fumehood.Error{Op: "create sandbox " + p.Types().Name, Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("there is no volume %s", v.Name)}
			}
			if err != nil {
				return err
			}
		}
		return c.Engine.CreateContainer(ctx, opts)
	}
	err := c.service.Create(ctx, distinctPorts(p.Types()), api.CreateOptions{IgnoreOrphans: true, Recreate: api.RecreateNever})
	if err != nil {
		return c.Engine.Translate(err, fmt.Sprintf("create sandbox %s", p.Types().Name))
	}
	return nil
}

// distinctPorts returns the project without repeated entries that publish the same container port on any host port.
// Engine 28.5 finds one free port for all such entries, and then fails because it is taken.
func distinctPorts(p *types.Project) *types.Project {
	once := *p
	once.Services = types.Services{}
	for name, svc := range p.Services {
		var ports []types.ServicePortConfig
		for _, port := range svc.Ports {
			again := port.Published == "" && slices.ContainsFunc(ports, func(have types.ServicePortConfig) bool {
				return have.Target == port.Target && have.Protocol == port.Protocol && have.HostIP == port.HostIP && have.Published == ""
			})
			if !again {
				ports = append(ports, port)
			}
		}
		svc.Ports = ports
		once.Services[name] = svc
	}
	return &once
}

// Start starts the containers of a Hooked service. It waits for nothing. Secrets and configs with a content belong to
// owner where the project sets no uid or gid.
func (c *SDK) Start(ctx context.Context, p *compose.Project, service string, owner engine.FileOwner) error {
	project := p.Types()
	svc := project.Services[service]
	svc.DependsOn = nil
	svc.Secrets, svc.Configs = slices.Clone(svc.Secrets), slices.Clone(svc.Configs)
	for i := range svc.Secrets {
		setOwner(&svc.Secrets[i].UID, &svc.Secrets[i].GID, owner)
	}
	for i := range svc.Configs {
		setOwner(&svc.Configs[i].UID, &svc.Configs[i].GID, owner)
	}
	alone := *project
	alone.Services = types.Services{service: svc}
	if err := c.service.Start(ctx, project.Name, api.StartOptions{Project: &alone}); err != nil {
		return c.Engine.Translate(err, "start service "+service)
	}
	return nil
}

func setOwner(uid, gid *string, owner engine.FileOwner) {
	*uid, *gid = cmp.Or(*uid, strconv.Itoa(owner.UID)), cmp.Or(*gid, strconv.Itoa(owner.GID))
}

// Close closes the connection.
func (c *SDK) Close() error { return c.Engine.Close() }
