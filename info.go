package fumehood

import "time"

// Connection describes how a person connects to a running service. Under native there is no container, and Shell is empty
// unless the sandbox is kept.
type Connection struct {
	Container string   `json:"container"` // the container's name
	Shell     []string `json:"shell"`     // a host command, using the program Spec.Binary, that opens a shell in it
	VSCode    []string `json:"vscode"`    // a host command that opens it in Visual Studio Code
	Ports     []Port   `json:"ports"`     // reachable ports, in the order of Spec.Ports or of the Compose file
}

// Info describes a sandbox.
type Info struct {
	Name     string        `json:"name"`     // the sandbox's name; under docker, also the Compose project's
	Provider string        `json:"provider"` // the provider's name
	Services []ServiceInfo `json:"services"` // the default service first

	Labels     map[string]string `json:"labels,omitempty"`      // labels from its spec, or as set by Assign
	ConfigFile string            `json:"config_file,omitempty"` // absolute path of its description; empty if none
	// EnvNames are the names of the variables that its spec sets or its Compose project sees, sorted.
	EnvNames []string `json:"env_names,omitempty"`
	// Unenforced lists the limits that the daemon does not enforce, which its options allowed: "memory", "swap",
	// "pids", "cpus", "disk".
	Unenforced []string `json:"unenforced,omitempty"`
	// OneUser reports whether root is the only user and group in the sandbox, and all files belong to it. So it is under
	// native, for a user without root and without subordinate ids.
	OneUser bool `json:"one_user,omitempty"`
}

// ServiceInfo describes a service.
type ServiceInfo struct {
	Name      string `json:"name"`
	Container string `json:"container"`         // the container's name; empty if none
	Image     string `json:"image"`             // the image's reference; empty if none
	User      string `json:"user"`              // default user of commands; empty means root
	Dir       string `json:"dir"`               // absolute directory that relative paths are resolved against
	Runtime   string `json:"runtime,omitempty"` // the container runtime; empty if none
	// Disk is the size of the root file system's writable layer in bytes. 0 means that it has no limit of its own.
	Disk int64 `json:"disk,omitempty"`
	// DiskOn is the file system that has this size: "tmpfs", which is memory, or "ext4". It is empty if Disk is 0.
	DiskOn string `json:"disk_on,omitempty"`
}

// MaxDetached is the maximum number of detached commands of a service: running, or ended and not forgotten.
const MaxDetached = 256

// ProcessInfo describes a command that was started with Start.
type ProcessInfo struct {
	ID      int       `json:"id"`      // number among its service's detached commands, from 1; 0 if not detached
	Args    []string  `json:"args"`    // program and arguments; only their first 4 KiB if another process started it
	Started time.Time `json:"started"` // when it was sent to the sandbox, on the host's clock
	Ended   bool      `json:"ended"`   // its result is known: Wait returns at once
}
