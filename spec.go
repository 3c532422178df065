package fumehood

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Spec says what sandbox to start. The zero value starts the provider's default image with no network
// and the default limits. It encodes to JSON and back, but for Journal and Logger; times are numbers of milliseconds there, whose
// names end in "_ms", and exact up to 99 days.
type Spec struct {
	// Name names the sandbox, and its Compose project under docker. Empty means a generated one,
	// "fumehood-" and 12 random characters.
	Name string `json:"name,omitempty"`
	// Compose starts a Compose project in place of one image. Then Image, Env, User, Dir, Network, Ports and
	// Mounts are empty, and Limits are those of services that set none.
	Compose *Compose `json:"compose,omitempty"`
	// Image is the image's reference. Empty means the provider's default.
	Image string `json:"image,omitempty"`
	// Images are the ids of the images that services run, by service; that of Image is by "default". They come from
	// Preparer.Prepare, and nothing is pulled or built then. Without any, services run what the spec names.
	Images map[string]string `json:"images,omitempty"`
	// Env is added to the image's environment, byte for byte.
	Env map[string]string `json:"env,omitempty"`
	// User and Dir are the service's user and working directory. Empty means the image's.
	User string `json:"user,omitempty"`
	Dir  string `json:"dir,omitempty"`
	// Network is what the sandbox reaches. Everything but none loosens the isolation and is logged.
	Network Network `json:"network,omitzero"`
	// Runtime is the name of the container runtime, such as runsc for gVisor, also of a Compose project's services. Empty
	// means the provider's, else the daemon's default.
	Runtime string `json:"runtime,omitempty"`
	// Ports, MaxPorts at most, are published on the host's loopback address, which needs a network. Connection tells
	// them; those of one port of the container for which the host's may be any may have the same.
	Ports []Port `json:"ports,omitempty"`
	// Limits bounds the service; its zero value means the defaults.
	Limits Limits `json:"limits,omitzero"`
	// Mounts makes folders or files of the host visible in the service.
	Mounts []Mount `json:"mounts,omitempty"`
	// AllowUnsafe allows, and logs, mounts of paths by which the sandbox could take over the host or read its user's keys:
	// the Docker socket, /etc, /proc, ~/.ssh. Of a Compose project Compose.AllowUnsafe does.
	AllowUnsafe bool `json:"allow_unsafe,omitempty"`
	// Keep leaves the sandbox in place when it is closed and when this process ends, labelled as kept. Its
	// detached commands run on, and an Opener reaches it again. Cleaner removes it.
	Keep bool `json:"keep,omitempty"`
	// TTL is how long a kept sandbox stays: a clean-up after that removes it. 0 means until it is named.
	TTL time.Duration `json:"-"`
	// Binary is the program that Connection names in the command line for a shell, by its name or path. Empty
	// means docker. It is never run.
	Binary string `json:"binary,omitempty"`

	// Labels say what the sandbox is for: which sample of which evaluation, say. Info and the journal's lines have them, and
	// under docker the labels fumehood.label.NAME. There are MaxLabels at most; a name has letters, digits, ".", "_" and
	// "-" in it, a value is UTF-8 without NUL, and both have at most MaxLabel bytes.
	Labels map[string]string `json:"labels,omitempty"`
	// ConfigFile is the file that describes the sandbox, for Info and labels alone. Empty means what Compose names.
	ConfigFile string `json:"config_file,omitempty"`
	// Journal takes down what is done in the sandbox, from its start on: package journal makes one that writes lines. Nil takes
	// nothing down.
	Journal *slog.Logger `json:"-"`
	// Logger logs what loosens the isolation, in place of the provider's. Nil means the provider's.
	Logger *slog.Logger `json:"-"`
}

// What bounds the Labels of a Spec: how many there are, and how many bytes a name or a value has.
const (
	MaxLabels = 32
	MaxLabel  = 4 << 10
)

// Network says what a sandbox reaches. The zero value reaches nothing.
type Network struct {
	// Mode is NetworkNone (also when empty), NetworkBridge, NetworkHost, or under docker the name of a network that exists.
	Mode string `json:"mode,omitempty"`
	// Allow are the hosts that can be reached, and no others. Empty means no such limit. No provider can hold it yet: it is an
	// ErrUnsupported.
	Allow []string `json:"allow,omitempty"`
}

// The modes of networks that providers know.
const (
	NetworkNone   = "none"   // nothing is reached
	NetworkBridge = "bridge" // a network of the sandbox's own, with a way out
	NetworkHost   = "host"   // the host's own
)

// IsNone reports whether the network reaches nothing.
func (n Network) IsNone() bool {
	return (n.Mode == "" || n.Mode == NetworkNone) && len(n.Allow) == 0
}

const (
	// NoLimit in a field of Limits lifts that limit.
	NoLimit = -1
	// DefaultMemory is the memory limit of a service in bytes, swap included.
	DefaultMemory = 2 << 30
	// DefaultPIDs is how many processes and threads a service may have at once.
	DefaultPIDs = 1024
)

// Limits bounds one service. In each field 0 means the default and NoLimit none.
type Limits struct {
	Memory int64   `json:"memory,omitempty"` // bytes, swap included; default DefaultMemory
	CPUs   float64 `json:"cpus,omitempty"`   // cores; no limit by default
	// PIDs limits processes and threads at once; default DefaultPIDs. Under docker the guest's own count
	// too, 14 and 8 for each command, so that less than 48 is an ErrConfig.
	PIDs int64 `json:"pids,omitempty"`
}

// minMemory is the least memory that an Engine accepts for a container (6 MiB since Engine 20.10).
const minMemory = 6 << 20

// WithDefaults returns the limits with each 0 resolved: a positive number, or NoLimit.
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
}

// Port is a port of a service that can be reached from outside the sandbox.
type Port struct {
	Host      int    `json:"host,omitempty"`      // 1 to 65535; in a Spec 0 means any that is free
	Container int    `json:"container,omitempty"` // 1 to 65535
	Protocol  string `json:"protocol,omitempty"`  // ProtocolTCP, also when empty, or ProtocolUDP
	// Address is the host's, "127.0.0.1" but for Compose projects that keep their ports. It is of the
	// daemon's machine, but for ports of internal networks, which are this machine's. In a Spec it is empty.
	Address string `json:"address,omitempty"`
}

// MaxPorts bounds the ports that one service publishes: each has a listener on this machine.
const MaxPorts = 1000

// The protocols of ports.
const (
	ProtocolTCP = "tcp"
	ProtocolUDP = "udp"
)

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Validate checks what can be checked without a daemon. Its errors are ErrConfig, or ErrUnsupported for what no provider has.
func (s *Spec) Validate() error {
	bad := func(format string, a ...any) error {
		return &Error{Op: "start sandbox", Class: ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	if s.Name != "" && !nameRE.MatchString(s.Name) {
		return bad("the name %q is not of the form %s", s.Name, nameRE)
	}
	for k, v := range s.Env {
		if err := checkEnv(k, v); err != nil {
			return bad("%w", err)
		}
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
	if s.TTL < 0 || s.TTL > 0 && !s.Keep {
		return bad("the TTL %v is negative, or the sandbox is not to be kept", s.TTL)
	}
	if strings.ContainsRune(s.Binary, 0) {
		return bad("the program %q contains a NUL", s.Binary)
	}
	if l := s.Limits; l.Memory < NoLimit || l.PIDs < NoLimit || (l.CPUs < 0 && l.CPUs != NoLimit) {
		return bad("a limit is negative")
	}
	if m := s.Limits.Memory; m > 0 && m < minMemory {
		return bad("the memory limit %d is below the least that an Engine accepts, %d bytes", m, minMemory)
	}
	if len(s.Network.Allow) > 0 {
		return &Error{
			Op: "start sandbox", Class: ErrUnsupported, Err: errors.New("no provider can allow some hosts only"),
			Hint: "leave Network.Allow empty",
		}
	}
	if s.Compose != nil {
		return s.validateCompose(bad)
	}
	if err := s.validatePorts(bad); err != nil {
		return err
	}
	return validateMounts(s.Mounts, bad)
}

// isText reports whether a text can be an Engine's label, and part of a journal.
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
			return fmt.Errorf("the label %.32s has %d bytes, and %d are the limit", name, max(len(name), len(value)), MaxLabel)
		}
	}
	return nil
}

// Validate says what is wrong with a port.
func (p Port) Validate() error {
	const most = 1<<16 - 1
	switch {
	case p.Host < 0 || p.Host > most || p.Container < 1 || p.Container > most:
		return fmt.Errorf("there is no port %d or %d", p.Host, p.Container)
	case p.Protocol != "" && p.Protocol != ProtocolTCP && p.Protocol != ProtocolUDP:
		return fmt.Errorf("there is no protocol %q, only %s and %s", p.Protocol, ProtocolTCP, ProtocolUDP)
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
		return bad("with the host's network every port is the host's already: publish none")
	}
	return nil
}

func validateMounts(mounts []Mount, bad func(string, ...any) error) error {
	seen := map[string]bool{}
	for _, m := range mounts {
		if m.Host == "" || !strings.HasPrefix(m.Container, "/") {
			return bad("the mount %q to %q needs a path of the host and an absolute path in the sandbox", m.Host, m.Container)
		}
		if seen[m.Container] {
			return bad("two mounts at %s", m.Container)
		}
		seen[m.Container] = true
	}
	return nil
}
