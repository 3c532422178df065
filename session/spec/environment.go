//go:generate go test -count=1 -run TestSchema_upToDate . -update-schema

package spec

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
)

// The types of environment.
const (
	TypeDocker = "docker"
	TypeLocal  = "local"
)

// CheckType returns an ErrFile for a file of TypeLocal, unless the user allows it. A file must not be able to
// run commands on this machine without isolation. File is the file's name, for the error.
func CheckType(file, kind string, allowLocal bool) error {
	if kind != TypeLocal || allowLocal {
		return nil
	}
	return &fumehood.Error{
		Op: "read", Path: file, Class: fumehood.ErrFile, Err: errors.New("type local runs commands on this machine, without isolation"),
		Hint: "allow it with --provider local",
	}
}

// The defaults that WithDefaults sets.
const (
	DefaultBinary       = "docker"
	DefaultWorkdir      = "/workspace"
	DefaultContext      = "."
	DefaultDockerfile   = "Dockerfile"
	DefaultSetupTimeout = 10 * time.Minute
	DefaultCompression  = "gz"
)

// Environment describes where the code of a session runs. In YAML a key with the value null counts as absent, and
// leaves its field at the zero value.
type Environment struct {
	// File is the path that the spec was read from, as the reader named it. A relative build context is resolved
	// against its folder.
	File string `yaml:"-"`
	// AllowRead lists files and folders outside the file's folder that the spec may mount read-only or build. A
	// file cannot set it.
	AllowRead []string `yaml:"-"`
	// AllowUnsafe allows, and logs, what breaks the isolation: mounts that are writable or not safe, the host's
	// network or an existing one, and under type docker the host's variables. A file cannot set it.
	AllowUnsafe bool `yaml:"-"`
	// Exclude lists files and folders of this machine that are left out of images, as in fumehood.PrepareOptions.
	Exclude []string `yaml:"-"`
	// Type is docker for containers, or local for processes of this machine without any isolation.
	Type string `yaml:"type" form:"type" required:"true"`
	// Name is the name of the environment. Images that are built from it are tagged fumehood:NAME.
	Name string `yaml:"name" form:"name"`
	// Docker describes the containers. It is required for type docker, and not allowed otherwise.
	Docker Docker `yaml:"docker"`
	// Environment holds the environment variables of all commands.
	Environment Variables `yaml:"environment"`
	// Setup lists what runs before each command.
	Setup Setup `yaml:"setup"`
	// Commands defines how a program of the workspace is run.
	Commands Commands `yaml:"commands"`
	// Snapshot defines the content of a snapshot of the workspace.
	Snapshot Snapshot `yaml:"snapshot"`
	// Limits bounds each container. An absent limit has Fumehood's default.
	Limits Limits `yaml:"limits"`
	// Local describes the processes. It is only allowed for type local.
	Local Local `yaml:"local"`
}

// Docker describes containers.
type Docker struct {
	// Image is the image's reference; with a build it is the tag of the built image. It is required, unless the
	// environment has a build and a name: then the image is tagged fumehood:NAME.
	Image string `yaml:"image" form:"image"`
	// Binary is the program in the commands that show users how to inspect a container: docker, podman, nerdctl,
	// or the absolute path of such a program.
	Binary string `yaml:"binary" form:"binary"`
	// Workdir is the working directory, an absolute path in the container.
	Workdir string `yaml:"workdir" form:"path"`
	// MountWorkspace mounts the workspace read-write at the working directory. If false, the workspace is
	// uploaded instead, for daemons that cannot access this machine's files.
	MountWorkspace *bool `yaml:"mount_workspace"`
	// ExtraMounts mounts more paths of the host, as HOST: CONTAINER[:ro|:rw] or HOST: {bind: CONTAINER, mode:
	// ro|rw}. Mounts are read-only by default. A relative host path is resolved against the workspace's root. A
	// container path must not be strictly below the working directory. A host path must be in the workspace or in
	// the spec's folder, and may be writable only in a mounted workspace, unless the user allows other paths.
	ExtraMounts Mounts `yaml:"extra_mounts"`
	// Network is none (the default), bridge, host (Linux only), or the name of an existing network. Every value
	// but none weakens isolation.
	Network string `yaml:"network" form:"network"`
	// Runtime is the name of one of the daemon's container runtimes, such as runsc for gVisor. If absent, it is
	// the user's choice, else the daemon's default.
	Runtime string `yaml:"runtime" form:"runtime"`
	// Seccomp is the seccomp profile browsers, with which browsers can isolate their own processes. It weakens
	// isolation, and needs the user's --allow-unsafe. If absent, it is Fumehood's own.
	Seccomp string `yaml:"seccomp" form:"seccomp"`
	// ShmSize is the size of /dev/shm, such as 1GiB, up to the memory limit. If absent, it is 64MiB.
	ShmSize int64 `yaml:"shm_size" form:"bytes"`
	// Tmpfs lists file systems in memory, as PATH[:OPTION,...] with options such as size=64MiB and mode=0700.
	Tmpfs Tmpfs `yaml:"tmpfs" form:"tmpfs"`
	// Ports publishes ports of the container on the loopback interface of the host, as HOST: CONTAINER. With host
	// port 0 the daemon chooses a free port; it also accepts a list of container ports.
	Ports Ports `yaml:"ports"`
	// User is the user of commands: a name or uid, or either with :GROUP. If absent, it is the host's user in an
	// evaluation, and the image's own user for agents.
	User string `yaml:"user" form:"user"`
	// KeepContainerAfterClean keeps the container, stopped, when its runtime is cleaned up.
	KeepContainerAfterClean bool `yaml:"keep_container_after_clean"`
	// Build defines how to build the image. If absent, no image is built.
	Build *Build `yaml:"build"`
}

// Tmpfs are file systems in memory, in the form of fumehood.ParseTmpfs.
type Tmpfs []string

// Build defines how an image is built.
type Build struct {
	// Context is the folder to build; a relative path is resolved against the spec's folder. It must be in that
	// folder, unless the user allows others.
	Context string `yaml:"context"`
	// Dockerfile is the path of the Dockerfile within the context.
	Dockerfile string `yaml:"dockerfile"`
	// Args are the build arguments.
	Args map[string]string `yaml:"args"`
}

// Variables are environment variables.
type Variables struct {
	// Env holds the variables. The values are text: numbers, true and false need quotes.
	Env map[string]string `yaml:"env"`
	// IncludeOSEnv passes on the variables of Fumehood's own process; env takes precedence.
	IncludeOSEnv bool `yaml:"include_os_env"`
}

// Setup defines what runs before each command, in the command's own shell.
type Setup struct {
	// Commands run first, in order.
	Commands []string `yaml:"commands"`
	// EvalCommands run after commands, only in evaluations.
	EvalCommands []string `yaml:"eval_commands"`
	// ResumeCommands run instead of commands in a session that starts from a snapshot; an empty list runs
	// nothing. If absent, commands run there as well.
	ResumeCommands []string `yaml:"resume_commands"`
	// FailFast ends the run at the first setup line that fails.
	FailFast bool `yaml:"fail_fast"`
	// LoginShell runs setup and command in a login shell, which first runs /etc/profile and files in HOME.
	// Evaluations reject it, because code under test could have written these files.
	LoginShell bool `yaml:"login_shell"`
	// Timeout bounds the time of the setup, such as 90s or 10m; none means no limit.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
}

// Commands define how a program of the workspace is run; see CommandLine.
type Commands struct {
	// EntryFile is the name of the file to run, with {entry_file} for the entry. If absent, nothing follows the
	// command. Other placeholders, such as {name}, are rejected.
	EntryFile string `yaml:"entry_file" form:"entry file"`
	// Command is shell text that precedes the entry file, such as python or java -jar.
	Command string `yaml:"command"`
	// AgentCommand replaces the command for agents. If absent, agents use the command.
	AgentCommand string `yaml:"agent_command"`
}

// Snapshot defines the content of a snapshot of the workspace. It never includes files that ignore_globs matches.
type Snapshot struct {
	// KeepGlobs match the files to include. If absent or null, everything is included; an empty list includes
	// nothing.
	KeepGlobs []string `yaml:"keep_globs" form:"glob"`
	// IgnoreGlobs match the files to leave out, even if keep_globs matches them.
	IgnoreGlobs []string `yaml:"ignore_globs" form:"glob"`
	// Compression is the compression of the archives: gz, xz, zst or none. With bz2, which can be read but not
	// written, new archives are gz.
	Compression string `yaml:"compression" form:"compression"`
	// ArchiveSaveDir is a folder of the host in which the archive of each snapshot is saved. If absent, no
	// archive is saved.
	ArchiveSaveDir string `yaml:"archive_save_dir"`
}

// Limits bounds each container. fumehood.Limits(l) has the same meaning for a provider. In Go 0 means the default
// and fumehood.NoLimit no limit; in YAML that is absent and "none".
type Limits struct {
	// Memory is the limit of memory including swap: a size such as 512MiB or 2g, a number of bytes, or none.
	Memory int64 `yaml:"memory" form:"memory"`
	// CPUs is the number of cores that may be used, such as 1.5, or none for no limit.
	CPUs float64 `yaml:"cpus" form:"cores"`
	// PIDs is the maximum number of processes and threads at once, or none for no limit.
	PIDs int64 `yaml:"pids" form:"pids"`
	// Disk is the size of the files that may be written, apart from mounts: a size such as 10GiB, a number of bytes,
	// or none for no limit. If absent, it is 1 GiB and at most half of the memory with the provider native, and none
	// with docker, which has no other.
	Disk int64 `yaml:"disk" form:"disk"`
}

// Local describes processes of this machine.
type Local struct {
	// RequiresTTY runs commands in a terminal.
	RequiresTTY bool `yaml:"requires_tty"`
	// Shell is the program that runs the setup. If absent, it is bash if available, else sh.
	Shell string `yaml:"shell"`
}

// BuildContext returns the folder of docker.build, or "" if there is no docker.build. A folder that is neither in
// the file's folder nor in AllowRead, with symbolic links resolved, is a fumehood.ErrFile.
func (e *Environment) BuildContext() (string, error) {
	if e.Docker.Build == nil {
		return "", nil
	}
	dir := e.Docker.WithDefaults().Build.Context
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(e.File), dir)
	}
	gate, err := e.gate()
	if err == nil {
		err = gate.Check(dir)
	}
	if err != nil {
		return "", &fumehood.Error{Op: "docker.build.context", Class: fumehood.ErrFile, Err: err}
	}
	return dir, nil
}

// Clone returns a deep copy, which shares no map, slice or pointer with e.
func (e *Environment) Clone() *Environment {
	c := *e
	for _, list := range []*[]string{
		&c.AllowRead, &c.Exclude, &c.Setup.Commands, &c.Setup.EvalCommands, &c.Setup.ResumeCommands, &c.Snapshot.KeepGlobs, &c.Snapshot.IgnoreGlobs,
	} {
		*list = slices.Clone(*list) // an empty list is not nil
	}
	c.Docker.ExtraMounts, c.Docker.Ports, c.Docker.Tmpfs = slices.Clone(c.Docker.ExtraMounts), slices.Clone(c.Docker.Ports), slices.Clone(c.Docker.Tmpfs)
	c.Environment.Env = maps.Clone(c.Environment.Env)
	if c.Docker.MountWorkspace != nil {
		c.Docker.MountWorkspace = new(*c.Docker.MountWorkspace)
	}
	if c.Docker.Build != nil {
		c.Docker.Build = new(*c.Docker.Build)
		c.Docker.Build.Args = maps.Clone(c.Docker.Build.Args)
	}
	return &c
}

// WithDefaults returns a copy in which unset fields have their defaults, where there is one.
func (e Environment) WithDefaults() Environment {
	if e.Type == TypeDocker {
		e.Docker = e.Docker.WithDefaults()
		if e.Docker.Image == "" && e.Docker.Build != nil {
			e.Docker.Image = "fumehood:" + e.Name
		}
	}
	e.Setup.Timeout = cmp.Or(e.Setup.Timeout, DefaultSetupTimeout)
	e.Commands.AgentCommand = cmp.Or(e.Commands.AgentCommand, e.Commands.Command)
	e.Snapshot.Compression = cmp.Or(e.Snapshot.Compression, DefaultCompression)
	e.Limits = Limits(fumehood.Limits(e.Limits).WithDefaults())
	return e
}

// WithDefaults returns a copy in which unset fields have their defaults, except Image and User.
func (d Docker) WithDefaults() Docker {
	d.Binary = cmp.Or(d.Binary, DefaultBinary)
	d.Workdir = cmp.Or(d.Workdir, DefaultWorkdir)
	d.Network = cmp.Or(d.Network, fumehood.NetworkNone)
	if d.MountWorkspace == nil {
		d.MountWorkspace = new(true)
	}
	if d.Build != nil {
		b := *d.Build
		b.Context = cmp.Or(b.Context, DefaultContext)
		b.Dockerfile = cmp.Or(b.Dockerfile, DefaultDockerfile)
		d.Build = &b
	}
	return d
}
