package fumehood

import "time"

// Connection says how a person gets into a running service.
type Connection struct {
	Container string   `json:"container"` // the container's name
	Shell     []string `json:"shell"`     // a command for the host that opens a shell in it, by the program Spec.Binary
	VSCode    []string `json:"vscode"`    // a command for the host that opens it in Visual Studio Code
	Ports     []Port   `json:"ports"`     // that can be reached, in the order of Spec.Ports or of the Compose file
}

// Info describes a sandbox.
type Info struct {
	Name     string        `json:"name"`     // the sandbox's name, which under docker is the Compose project's
	Provider string        `json:"provider"` // the provider's name
	Services []ServiceInfo `json:"services"` // the default service first

	Labels     map[string]string `json:"labels,omitempty"`      // of its spec, or as Assign has set them
	ConfigFile string            `json:"config_file,omitempty"` // the absolute path of the file that describes it; empty where there is none
	EnvNames   []string          `json:"env_names,omitempty"`   // of the variables that its spec sets, or its Compose project sees, sorted
	Unenforced []string          `json:"unenforced,omitempty"`  // the limits that the daemon does not hold, which was allowed: "memory", "swap", "pids", "cpus"
}

// ServiceInfo describes a service.
type ServiceInfo struct {
	Name      string `json:"name"`
	Container string `json:"container"`         // the container's name; empty where there is none
	Image     string `json:"image"`             // the image's reference; empty where there is none
	User      string `json:"user"`              // the user that commands run as by default; empty means root
	Dir       string `json:"dir"`               // the absolute directory that relative paths are below
	Runtime   string `json:"runtime,omitempty"` // the container runtime; empty where there is none
}

// MaxDetached is how many detached commands a service has at most, running or ended and not forgotten.
const MaxDetached = 256

// ProcessInfo describes a command that Start handed over.
type ProcessInfo struct {
	ID      int       `json:"id"`      // the number among its service's detached commands, from 1 on; 0 for one that is not detached
	Args    []string  `json:"args"`    // the program and its arguments; of what another process started, the first 4 KiB of them
	Started time.Time `json:"started"` // when it was handed over, on the host's clock
	Ended   bool      `json:"ended"`   // its end is known: Wait returns at once
}
