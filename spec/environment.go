//go:generate go test -count=1 -run TestTheSchemaIsWhatTheTypesSay . -update-schema

package spec

import (
	"cmp"
	"errors"
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood"
)

// The kinds of environment.
const (
	TypeDocker = "docker"
	TypeLocal  = "local"
)

// CheckType refuses a file's TypeLocal, as an ErrConfig, unless the user has allowed it: no file can ask for commands that are
// run on this machine, without isolation. file is the file's name, for the error.
func CheckType(file, kind string, allowLocal bool) error {
	if kind != TypeLocal || allowLocal {
		return nil
	}
	return &fumehood.Error{
		Op: "read", Path: file, Class: fumehood.ErrConfig, Err: errors.New("type local runs commands on this machine, without isolation"),
		Hint: "allow it with --provider local",
	}
}

// What WithDefaults fills in.
const (
	DefaultBinary       = "docker"
	DefaultWorkdir      = "/workspace"
	DefaultContext      = "."
	DefaultDockerfile   = "Dockerfile"
	DefaultSetupTimeout = 10 * time.Minute
	DefaultCompression  = "gz"
)

// Environment describes where the code of a session runs. In YAML a key that is null counts as absent,
// and leaves its field at the zero value.
type Environment struct {
	// File is where the spec was read from, as the reader named it. A relative build context starts at
	// its folder.
	File string `yaml:"-"`
	// AllowRead are files and folders outside the file's folder that it may name, to have them mounted read-only or built.
	// No file can say that.
	AllowRead []string `yaml:"-"`
	// AllowUnsafe allows, and logs, what breaks the isolation: mounts that are writable or not safe, the host's network
	// or one that exists, and under type docker the host's variables. No file can say that.
	AllowUnsafe bool `yaml:"-"`
	// Exclude are files and folders of this machine that no image is built of, as in fumehood.PrepareOptions.
	Exclude []string `yaml:"-"`
	// Type is docker for containers, or local for processes of this machine without any isolation.
	Type string `yaml:"type" form:"type" required:"true"`
	// Name names the environment. Images that are built of it are called fumehood:NAME.
	Name string `yaml:"name" form:"name"`
	// Docker describes the containers. Only for type docker, which needs it.
	Docker Docker `yaml:"docker"`
	// Environment holds the variables of everything that runs.
	Environment Variables `yaml:"environment"`
	// Setup says what runs before each command.
	Setup Setup `yaml:"setup"`
	// Commands says how a program of the workspace is run.
	Commands Commands `yaml:"commands"`
	// Snapshot says what a snapshot of the workspace holds.
	Snapshot Snapshot `yaml:"snapshot"`
	// Limits bounds each container. What is absent has Fumehood's default.
	Limits Limits `yaml:"limits"`
	// Local describes the processes. Only for type local.
	Local Local `yaml:"local"`
}

// Docker describes containers.
type Docker struct {
	// Image is the image's reference; with a build it is the tag of what is built. It is required, but
	// for an environment with a build and a name, which is tagged fumehood:NAME.
	Image string `yaml:"image" form:"image"`
	// Binary is the program that is named where a user is told how to look into a container: docker, podman, nerdctl,
	// or the absolute path of such a program.
	Binary string `yaml:"binary" form:"binary"`
	// Workdir is the working directory, an absolute path in the container.
	Workdir string `yaml:"workdir" form:"path"`
	// MountWorkspace mounts the workspace read-write at the working directory. False leaves it to be
	// uploaded, for daemons that do not see this machine's files.
	MountWorkspace *bool `yaml:"mount_workspace"`
	// ExtraMounts makes more paths of the host visible, as HOST: CONTAINER[:ro|:rw] or
	// HOST: {bind: CONTAINER, mode: ro|rw}, read-only if not said. A relative host path starts at the
	// workspace's root. No container path may lie strictly below the working directory. A host path lies
	// in the workspace or in the spec's folder, and is writable only in a workspace that is mounted, unless
	// the user allows another.
	ExtraMounts Mounts `yaml:"extra_mounts"`
	// Network is none (also when absent), bridge, host (Linux only), or the name of a network that
	// exists. Everything but none loosens the isolation.
	Network string `yaml:"network" form:"network"`
	// Runtime is the name of one of the daemon's container runtimes, such as runsc for gVisor. Absent means the
	// user's choice, else the daemon's default.
	Runtime string `yaml:"runtime" form:"runtime"`
	// Ports publishes ports of the container on the loopback interface of the host, as HOST: CONTAINER.
	// Host port 0 is a free one that the daemon chooses; it also takes a list of container ports.
	Ports Ports `yaml:"ports"`
	// User is who commands run as: a name or uid, or either with :GROUP. Absent means the host's user
	// in an evaluation, and the image's own user for agents.
	User string `yaml:"user" form:"user"`
	// KeepContainerAfterClean leaves the container, stopped, when its runtime is cleaned up.
	KeepContainerAfterClean bool `yaml:"keep_container_after_clean"`
	// Build says how to build the image. Absent means that it is not built.
	Build *Build `yaml:"build"`
}

// Build says how an image is built.
type Build struct {
	// Context is the folder that is built; a relative one starts at the spec's folder. It lies in that
	// folder, unless the user allows another.
	Context string `yaml:"context"`
	// Dockerfile is the path of the Dockerfile within the context.
	Dockerfile string `yaml:"dockerfile"`
	// Args are the build's arguments.
	Args map[string]string `yaml:"args"`
}

// Variables are environment variables.
type Variables struct {
	// Env holds the variables. Numbers, true and false need quotes.
	Env map[string]string `yaml:"env"`
	// IncludeOSEnv passes on the variables of Fumehood's own process, beneath those of env.
	IncludeOSEnv bool `yaml:"include_os_env"`
}

// Setup is what runs before each command, in the command's own shell.
type Setup struct {
	// Commands run first.
	Commands []string `yaml:"commands"`
	// EvalCommands run after commands, in evaluations only.
	EvalCommands []string `yaml:"eval_commands"`
	// ResumeCommands run in the place of commands in a session that begins with a snapshot, an empty list
	// too. Absent means that commands run there as well.
	ResumeCommands []string `yaml:"resume_commands"`
	// FailFast ends the run at the first set-up line that fails.
	FailFast bool `yaml:"fail_fast"`
	// LoginShell has set-up and command run in a login shell, which runs /etc/profile and what is in HOME first. Evaluations
	// refuse it: the code under test could have written that.
	LoginShell bool `yaml:"login_shell"`
	// Timeout bounds the set-up's time, such as 90s or 10m; none means no limit.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
}

// Commands say how a program of the workspace is run; see CommandLine.
type Commands struct {
	// EntryFile is the file's name, with {entry_file} for the entry that is run. Absent means that
	// nothing follows the command.
	EntryFile string `yaml:"entry_file"`
	// Command is shell text that the entry file follows, such as python or java -jar.
	Command string `yaml:"command"`
	// AgentCommand is used by agents in the command's place. Absent means the command.
	AgentCommand string `yaml:"agent_command"`
}

// Snapshot says what a snapshot of the workspace holds. What ignore_globs matches is never in it.
type Snapshot struct {
	// KeepGlobs match what is kept. Absent or null keeps everything, an empty list nothing.
	KeepGlobs []string `yaml:"keep_globs"`
	// IgnoreGlobs match what is left out, also of what keep_globs matches.
	IgnoreGlobs []string `yaml:"ignore_globs"`
	// Compression is that of the archives: gz, xz, zst or none.
	Compression string `yaml:"compression" form:"compression"`
	// ArchiveSaveDir is a folder of the host in which each snapshot's archive is saved. Absent saves
	// none.
	ArchiveSaveDir string `yaml:"archive_save_dir"`
}

// Limits bounds each container: fumehood.Limits(l) is the same for a provider. In Go 0 means the
// default and fumehood.NoLimit none; in YAML that is absent and "none".
type Limits struct {
	// Memory is a size with swap included, such as 512MiB or 2g, a number of bytes, or none.
	Memory int64 `yaml:"memory" form:"size"`
	// CPUs is how many cores may be used, such as 1.5, or none for no limit.
	CPUs float64 `yaml:"cpus" form:"cores"`
	// PIDs is how many processes and threads there may be at once, or none for no limit.
	PIDs int64 `yaml:"pids" form:"count"`
}

// Local describes processes of this machine.
type Local struct {
	// RequiresTTY gives commands a terminal.
	RequiresTTY bool `yaml:"requires_tty"`
	// Shell is the program that runs the set-up. Absent means bash if there is one, else sh.
	Shell string `yaml:"shell"`
}

// BuildContext returns the folder that docker.build is of. One that is neither in the file's folder nor in AllowRead, symbolic
// links resolved, is a fumehood.ErrConfig. It is empty where there is no docker.build.
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
		return "", &fumehood.Error{Op: "docker.build.context", Class: fumehood.ErrConfig, Err: err}
	}
	return dir, nil
}

// WithDefaults returns a copy in which what was not said has its default, as far as there is one.
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

// WithDefaults returns a copy in which what was not said has its default, but for Image and User.
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
