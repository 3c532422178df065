package journal

import (
	"time"

	"github.com/fumehood/fumehood/internal/jsontext"
)

// Text is a name, path or argument, which may have any bytes. In JSON it is a string if it is UTF-8, or else an object
// {"base64": "..."}.
type Text = jsontext.Text

// Line is a line of a journal: a *Phase, *Network, *Sandbox, *Command, *End, *File or *Lost, or an *Other.
type Line interface{ head() *Head }

// Head is the common part of all lines.
type Head struct {
	Time    time.Time         `json:"time"`              // when the line was written
	Kind    string            `json:"kind"`              // "phase", "network", "sandbox", "command", "end", "file", "lost"
	Sandbox string            `json:"sandbox,omitempty"` // its name; empty in a Lost
	Labels  map[string]string `json:"labels,omitempty"`  // labels of its fumehood.Spec
	Cut     bool              `json:"cut,omitempty"`     // a text or a list was shortened
}

func (h *Head) head() *Head { return h }

// Phase reports that a phase of a sandbox has ended.
type Phase struct {
	Head
	Phase string  `json:"phase"`
	MS    float64 `json:"ms"` // how long it took, in milliseconds
	Error *Error  `json:"error,omitempty"`
}

// Network reports what a sandbox can reach, and from where it can be reached.
type Network struct {
	Head
	Network string   `json:"network"` // "none", "bridge", "host" or a name; for Compose projects "internal" or "project"
	Egress  string   `json:"egress"`  // "none", "internet" or "unknown"
	Subnets []string `json:"subnets,omitempty"`
	Ports   []Port   `json:"ports,omitempty"`
}

// Port is a reachable port of a service.
type Port struct {
	Service   string `json:"service"`
	Address   string `json:"address"`
	Host      int    `json:"host"` // 0 means any free port
	Container int    `json:"container"`
	Protocol  string `json:"protocol"`
}

// Sandbox reports that a sandbox has started.
type Sandbox struct {
	Head
	Provider   string            `json:"provider"`
	ConfigFile string            `json:"config_file,omitempty"`
	Services   []Service         `json:"services"`      // the default service first
	Env        map[string]string `json:"env,omitempty"` // names of variables, each with "[redacted]"
	Kept       bool              `json:"kept,omitempty"`
}

// Service is a service of a sandbox.
type Service struct {
	Name      string `json:"name"`
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`
}

// Command reports that a command is about to start.
type Command struct {
	Head
	ID        int64             `json:"id"` // from 1, counted per sandbox and journal
	Service   string            `json:"service"`
	User      Text              `json:"user,omitempty"` // empty means the service's user
	Dir       Text              `json:"dir,omitempty"`
	Args      []Text            `json:"args"`
	Env       map[string]string `json:"env,omitempty"` // names of variables, each with "[redacted]"
	Stdin     bool              `json:"stdin,omitempty"`
	TimeoutMS float64           `json:"timeout_ms,omitempty"`  // in milliseconds
	CPUTimeMS float64           `json:"cpu_time_ms,omitempty"` // in milliseconds
	Detached  bool              `json:"detached,omitempty"`
	ViaEngine bool              `json:"via_engine,omitempty"`
	TTY       bool              `json:"tty,omitempty"`
}

// End reports how a command ended. Error is set if that is not known, or if the command was not started.
type End struct {
	Head
	ID       int64   `json:"id"` // ID of its Command
	Service  string  `json:"service"`
	Outcome  string  `json:"outcome,omitempty"` // a fumehood.Outcome
	ExitCode *int    `json:"exit_code,omitempty"`
	Signal   int     `json:"signal,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	Leaked   bool    `json:"leaked,omitempty"`
	MS       float64 `json:"ms"`           // how long it ran, in milliseconds
	Stdout   int64   `json:"stdout_bytes"` // bytes written
	Stderr   int64   `json:"stderr_bytes"`
	Usage    *Usage  `json:"usage,omitempty"` // nil if not known
	Error    *Error  `json:"error,omitempty"`
}

// Usage describes the resources that a command used: see fumehood.Usage.
type Usage struct {
	UserMS     float64 `json:"user_ms"`
	SystemMS   float64 `json:"system_ms"`
	MaxRSS     int64   `json:"max_rss"`
	MemoryPeak int64   `json:"memory_peak"`
	OOMKills   int64   `json:"oom_kills"`
	PIDsLimits int64   `json:"pids_limits"`
}

// File reports a file operation, successful or not.
type File struct {
	Head
	Op      string  `json:"op"`
	Service string  `json:"service"`
	User    Text    `json:"user,omitempty"`
	Path    Text    `json:"path"`
	Target  Text    `json:"target,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	MS      float64 `json:"ms"` // in milliseconds
	Error   *Error  `json:"error,omitempty"`
}

// Lost reports that lines are missing.
type Lost struct {
	Head
	Lines int64 `json:"lines"`
}

// Other is a line of an unknown kind.
type Other struct {
	Head
	Text []byte `json:"-"` // the whole line
}

// Error is a failure of Fumehood, never a program's outcome.
type Error struct {
	Class   string `json:"class"` // a fumehood.Code
	Message string `json:"message"`
}
