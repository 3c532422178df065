package fumehood

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Spec describes the sandbox to start. The zero value starts the provider's default image with no network and the
// default limits. It can be encoded to JSON and decoded, except Journal, Logger and the Workspace of Mounts. Durations are numbers of
// milliseconds there, in fields named "..._ms", and exact up to 99 days.
type Spec struct {
	// Name is the name of the sandbox and, under docker, of its Compose project. Empty means a generated name,
	// "fumehood-" and 12 random characters.
	Name string `json:"name,omitempty"`
	// Compose starts a Compose project instead of one image. Image, Env, User, Dir, Network, Ports, Mounts, Tmpfs and
	// ShmSize must then be empty. Limits that are not 0 are the highest that a service may have; the defaults apply to
	// services that set none.
	Compose *Compose `json:"compose,omitempty"`
	// Image is the image's reference. Empty means the provider's default.
	Image string `json:"image,omitempty"`
	// Images are the IDs of the images to run, by service; the service of Image is "default". They come from
	// Preparer.Prepare. If set, nothing is pulled or built. If empty, services run the images that the spec names.
	Images map[string]string `json:"images,omitempty"`
	// Env is added to the image's environment, byte for byte.
	Env map[string]string `json:"env,omitempty"`
	// User and Dir are the service's user and working directory. Empty means the image's.
	User string `json:"user,omitempty"`
	Dir  string `json:"dir,omitempty"`
	// Network is what the sandbox can reach. Anything but NetworkNone weakens isolation and is logged.
	Network Network `json:"network,omitzero"`
	// Runtime is the name of the container runtime, such as runsc for gVisor. It applies to the services of a
	// Compose project too. Empty means the provider's, else the daemon's default. The native provider knows crun, runc
	// and runsc.
	Runtime string `json:"runtime,omitempty"`
	// Seccomp is the seccomp profile: empty for the provider's, or SeccompBrowsers, which weakens isolation and is logged. It
	// applies to the services of a Compose project too. gVisor ignores it. With a provider that has another profile than
	// Fumehood's it is an ErrConfig.
	Seccomp string `json:"seccomp,omitempty"`
	// Ports are published on the host's loopback address. There may be MaxPorts at most, and they require a
	// network. Connection lists them. Ports with the same container port and any free host port may share one host
	// port.
	Ports []Port `json:"ports,omitempty"`
	// Limits are the limits of the service. The zero value means the defaults.
	Limits Limits `json:"limits,omitzero"`
	// ShmSize is the size of /dev/shm in bytes, up to the memory limit, which its content counts towards. 0 means
	// DefaultShmSize. Programs such as browsers and PyTorch's data loaders need more.
	ShmSize int64 `json:"shm_size,omitempty"`
	// Tmpfs are empty file systems in memory, in the form of ParseTmpfs: "/scratch:size=64m,mode=0700". Without a size, each
	// has that of the memory limit, which its content counts towards and which a size may not exceed. They belong to root,
	// have the mode of the image's folder at that path, or 1777 if there is none, and programs in them cannot be run, unless
	// the options say otherwise. With runc before 1.1.9, docker ignores a mode if the image has the folder.
	Tmpfs []string `json:"tmpfs,omitempty"`
	// Mounts makes folders or files of the host visible in the service.
	Mounts []Mount `json:"mounts,omitempty"`
	// AllowUnsafe allows, and logs, mounts of paths through which the sandbox could take over the host or read its
	// user's keys: the Docker socket, /etc, /proc, ~/.ssh. For a Compose project, use Compose.AllowUnsafe.
	AllowUnsafe bool `json:"allow_unsafe,omitempty"`
	// Keep leaves the sandbox in place when it is closed and when this process ends, and labels it as kept. Its
	// detached commands run on, and an Opener reaches it again. A Cleaner removes it.
	Keep bool `json:"keep,omitempty"`
	// TTL is how long a kept sandbox stays; the next cleanup after that removes it. 0 keeps it until a cleanup
	// names it.
	TTL time.Duration `json:"-"`
	// Binary is the name or path of the program in the shell command line that Connection returns. Empty means
	// docker. It is never run.
	Binary string `json:"binary,omitempty"`

	// Labels describe the purpose of the sandbox, such as a sample of an evaluation. They appear in Info and in
	// journal lines and, under docker, as container labels fumehood.label.NAME. There are at most MaxLabels. Names
	// consist of letters, digits, ".", "_" and "-". Values are UTF-8 without NUL. Both have at most MaxLabel bytes.
	Labels map[string]string `json:"labels,omitempty"`
	// ConfigFile is the file that describes the sandbox. It is used only in Info and labels. Empty means the file
	// that Compose names.
	ConfigFile string `json:"config_file,omitempty"`
	// Journal records the sandbox's activity from its start on. Package journal creates one that writes lines. Nil
	// disables recording.
	Journal *slog.Logger `json:"-"`
	// Logger logs settings that weaken isolation. Nil means the provider's logger.
	Logger *slog.Logger `json:"-"`
}

// Bounds for the Labels of a Spec: their number, and the bytes of each name and value.
const (
	MaxLabels = 32
	MaxLabel  = 4 << 10
)

// Network describes what a sandbox can reach. The zero value reaches nothing.
type Network struct {
	// Mode is NetworkNone (the default), NetworkBridge, NetworkHost or, under docker, the name of an existing
	// network.
	Mode string `json:"mode,omitempty"`
	// Allow lists the only hosts that may be reached. Empty means no such restriction. No provider supports it yet:
	// it is an ErrUnsupported.
	Allow []string `json:"allow,omitempty"`
}

// The network modes that this package defines.
const (
	NetworkNone   = "none"   // no access
	NetworkBridge = "bridge" // a separate network with external access
	NetworkHost   = "host"   // the host's own network
)

// IsNone reports whether the network reaches nothing.
func (n Network) IsNone() bool {
	return (n.Mode == "" || n.Mode == NetworkNone) && len(n.Allow) == 0
}

// SeccompBrowsers is the seccomp profile for browsers that isolate their own processes, such as Chromium. It also allows
// any process to make user, PID, IPC and network namespaces, and to change its root folder.
const SeccompBrowsers = "browsers"

const (
	// NoLimit in a field of Limits removes that limit.
	NoLimit = -1
	// DefaultMemory is the default memory limit of a service in bytes, including swap.
	DefaultMemory = 2 << 30
	// DefaultPIDs is the default limit of concurrent processes and threads of a service.
	DefaultPIDs = 1024
	// DefaultShmSize is the default size of /dev/shm in bytes.
	DefaultShmSize = 64 << 20
	// MaxCPUs is the highest limit of cores. No kernel of Linux has more (NR_CPUS on amd64).
	MaxCPUs = 8192
	// MinMemory is the smallest memory limit in bytes: that of Docker Engine since 20.10.
	MinMemory = 6 << 20
	// MinPIDs is the smallest process limit. Under docker the guest's own threads count too: about 16 when it is idle, and 3 or 4 for each command. Go
	// crashes a program that cannot create a thread it needs: with a limit of 24, fork bombs crashed workers; with 48
	// they did not.
	MinPIDs = 48
	maxPIDs = 4 << 20 // PID_MAX_LIMIT of Linux, above which its control groups refuse a limit
	// MinDisk is the smallest disk limit in bytes.
	MinDisk = 1 << 20
)

// Limits are the limits of one service. In each field, 0 means the default and NoLimit no limit.
type Limits struct {
	Memory int64   `json:"memory,omitempty"` // bytes, including swap, from MinMemory on; default DefaultMemory
	CPUs   float64 `json:"cpus,omitempty"`   // cores, at most MaxCPUs; no limit by default
	// PIDs limits concurrent processes and threads, from MinPIDs on; default DefaultPIDs. A command that cannot start because
	// the limit is reached is an ErrLimit that states both numbers.
	PIDs int64 `json:"pids,omitempty"`
	// Disk limits the size of the files that the service writes, in bytes from MinDisk on, apart from mounts and tmpfs.
	// By default native has 1 GiB, at most half of the memory limit, and docker and local have no limit. The docker and local
	// providers return an ErrUnsupported for a limit, and native for NoLimit.
	Disk int64 `json:"disk,omitempty"`
}

// maxDisk bounds a disk limit in bytes. It is just below the largest file in ext4 (16 TiB).
const maxDisk = 15 << 40

// WithDefaults returns the limits with each 0 but that of Disk replaced by the default: a positive number, or NoLimit.
func (l Limits) WithDefaults() Limits {
	if l.Memory == 0 {
		l.Memory = DefaultMemory
	}
	if l.CPUs == 0 {
		l.CPUs = NoLimit
	}
	if l.PIDs == 0 {
		l.PIDs = DefaultPIDs
	}
	return l
}

// Mount makes a path of the host visible in the service.
type Mount struct {
	Host      string `json:"host,omitempty"`      // absolute path on the host; it must exist
	Container string `json:"container,omitempty"` // absolute path in the service
	Writable  bool   `json:"writable,omitempty"`  // false mounts it read-only
	// Workspace marks a folder that the caller made for this sandbox to write to. It is not logged as weaker
	// isolation.
	Workspace bool `json:"-"`
}

// Port is a port of a service that is reachable from outside the sandbox.
type Port struct {
	Host      int    `json:"host,omitempty"`      // 1 to 65535; in a Spec, 0 means any free port
	Container int    `json:"container,omitempty"` // 1 to 65535
	Protocol  string `json:"protocol,omitempty"`  // ProtocolTCP (the default) or ProtocolUDP
	// Address is the host's address: "127.0.0.1", except for Compose projects that keep their ports. It is an
	// address of the daemon's machine or, for ports of internal networks, of this machine. In a Spec it must be
	// empty.
	Address string `json:"address,omitempty"`
}

// MaxPorts limits the ports that one service publishes: each has a listener on this machine.
const MaxPorts = 1000

// The protocols of ports.
const (
	ProtocolTCP = "tcp"
	ProtocolUDP = "udp"
)

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Validate checks everything that can be checked without a daemon. Its errors are ErrConfig, or ErrUnsupported for
// features that no provider has.
func (s *Spec) Validate() error {
	bad := func(format string, a ...any) error {
		return &Error{Op: "start sandbox", Class: ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	if s.Name != "" && !nameRE.MatchString(s.Name) {
		return bad("the name %q is not of the form %s", s.Name, nameRE)
	}
	for k, v := range s.Env {
		if err := checkEnvText(k, v); err != nil {
			return bad("%w", err)
		}
	}
	if err := checkTexts(reflect.ValueOf(*s)); err != nil { // providers pass it on as JSON
		return bad("%w", err)
	}
	if s.Dir != "" && !strings.HasPrefix(s.Dir, "/") {
		return bad("the working directory %q is not absolute", s.Dir)
	}
	if !isText(s.ConfigFile) {
		return bad("the file's name %q is not UTF-8, or contains a NUL byte", s.ConfigFile)
	}
	if err := checkLabels(s.Labels); err != nil {
		return bad("%w", err)
	}
	if s.Seccomp != "" && s.Seccomp != SeccompBrowsers {
		return bad("the seccomp profile %q is not %q", s.Seccomp, SeccompBrowsers)
	}
	if s.TTL < 0 || s.TTL > 0 && !s.Keep {
		return bad("the TTL %v is negative, or is not for a kept sandbox", s.TTL)
	}
	if strings.ContainsRune(s.Binary, 0) {
		return bad("the program %q contains a NUL", s.Binary)
	}
	if err := s.Limits.validate(bad); err != nil {
		return err
	}
	if err := s.validateShmSize(bad); err != nil {
		return err
	}
	if len(s.Network.Allow) > 0 {
		return &Error{
			Op: "start sandbox", Class: ErrUnsupported, Err: errors.New("no provider supports Network.Allow yet"),
			Hint: "leave Network.Allow empty",
		}
	}
	if s.Compose != nil {
		return s.validateCompose(bad)
	}
	if err := s.validatePorts(bad); err != nil {
		return err
	}
	if err := validateMounts(s.Mounts, bad); err != nil {
		return err
	}
	return s.validateTmpfs(bad)
}

func (l Limits) validate(bad func(string, ...any) error) error {
	switch {
	case l.Memory < NoLimit:
		return bad("the memory limit %d is negative", l.Memory)
	case l.CPUs < 0 && l.CPUs != NoLimit:
		return bad("the CPU limit %v is negative", l.CPUs)
	case !(l.CPUs <= MaxCPUs): // true for NaN
		return bad("the CPU limit %v is not a number up to %d", l.CPUs, MaxCPUs)
	case l.PIDs < NoLimit:
		return bad("the process limit %d is negative", l.PIDs)
	case l.PIDs > maxPIDs:
		return bad("the process limit %d is above %d, which no kernel has", l.PIDs, maxPIDs)
	case l.Disk < NoLimit:
		return bad("the disk limit %d is negative", l.Disk)
	case l.Disk > 0 && (l.Disk < MinDisk || l.Disk > maxDisk):
		return bad("the disk limit %d is not between 1 MiB and 15 TiB", l.Disk)
	}
	switch {
	case l.Memory > 0 && l.Memory < MinMemory:
		return bad("the memory limit of %d bytes is below the minimum of %d (6 MiB)", l.Memory, MinMemory)
	case l.PIDs > 0 && l.PIDs < MinPIDs:
		return &Error{
			Op: "start sandbox", Class: ErrConfig,
			Err:  fmt.Errorf("the process limit of %d is below the minimum of %d: the guest's own threads count too", l.PIDs, MinPIDs),
			Hint: "raise the limit (--pids), or limit the processes of each command (--ulimit nproc=N)",
		}
	}
	return nil
}

func (s *Spec) validateShmSize(bad func(string, ...any) error) error {
	most := s.Limits.WithDefaults().Memory
	switch {
	case s.ShmSize < 0:
		return bad("the size of /dev/shm, %d, is negative", s.ShmSize)
	case most > 0 && s.ShmSize > most:
		return bad("the size of /dev/shm, %d bytes, is above the memory limit of %d, which its content counts towards", s.ShmSize, most)
	}
	return nil
}

// isText reports whether a string is valid in an Engine label and in a journal.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

var labelRE = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func checkLabels(labels map[string]string) error {
	if n := len(labels); n > MaxLabels {
		return fmt.Errorf("%d labels are too many: %d at most", n, MaxLabels)
	}
	for name, value := range labels {
		switch {
		case !labelRE.MatchString(name):
			return fmt.Errorf("the label's name %q is not of the form %s", name, labelRE)
		case !isText(value):
			return fmt.Errorf("the label %s is not UTF-8, or contains a NUL byte: %q", name, value)
		case max(len(name), len(value)) > MaxLabel:
			return fmt.Errorf("the label %.32s has %d bytes, more than the limit of %d", name, max(len(name), len(value)), MaxLabel)
		}
	}
	return nil
}

// Validate checks the port's numbers and protocol.
func (p Port) Validate() error {
	const most = 1<<16 - 1
	switch {
	case p.Host < 0 || p.Host > most || p.Container < 1 || p.Container > most:
		return fmt.Errorf("invalid port: host %d, container %d", p.Host, p.Container)
	case p.Protocol != "" && p.Protocol != ProtocolTCP && p.Protocol != ProtocolUDP:
		return fmt.Errorf("unknown protocol %q: only %s and %s are supported", p.Protocol, ProtocolTCP, ProtocolUDP)
	}
	return nil
}

func (s *Spec) validatePorts(bad func(string, ...any) error) error {
	type hostPort struct {
		port     int
		protocol string
	}
	if n := len(s.Ports); n > MaxPorts {
		return bad("%d ports are too many: %d at most", n, MaxPorts)
	}
	taken := map[hostPort]bool{}
	for _, p := range s.Ports {
		host := hostPort{p.Host, cmp.Or(p.Protocol, ProtocolTCP)}
		if err := p.Validate(); err != nil {
			return bad("%w", err)
		}
		switch {
		case p.Address != "":
			return bad("port %d has an address: ports are published at the loopback address", p.Container)
		case p.Host != 0 && taken[host]:
			return bad("port %d of the host is published twice", p.Host)
		}
		taken[host] = true
	}
	if len(s.Ports) == 0 {
		return nil
	}
	switch s.Network.Mode {
	case "", NetworkNone:
		return &Error{
			Op: "start sandbox", Class: ErrConfig, Err: errors.New("ports cannot be published from a sandbox without a network"),
			Hint: "set the network to " + NetworkBridge,
		}
	case NetworkHost:
		return bad("ports cannot be published on the host's network: they are reachable already")
	}
	return nil
}

func validateMounts(mounts []Mount, bad func(string, ...any) error) error {
	seen := map[string]bool{}
	for _, m := range mounts {
		if m.Host == "" || !strings.HasPrefix(m.Container, "/") {
			return bad("the mount %q to %q needs a path of the host and an absolute path in the sandbox", m.Host, m.Container)
		}
		at := path.Clean(m.Container)
		if seen[at] {
			return bad("two mounts at %s", at)
		}
		seen[at] = true
	}
	return nil
}
