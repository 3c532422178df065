package compose

import (
	"time"

	"github.com/fumehood/fumehood/internal/hostpath"
)

// Source says where a service gets its image from.
type Source struct {
	Service  string
	Project  string // the project's folder; empty where there is none
	Image    string // the reference; with Build one more name of what is built, or empty
	Platform string // "linux/arm64"; empty means the daemon's
	Pull     string // PullMissing, PullAlways or PullNever
	// Age, with PullAlways, is how old an image that is there may be without being pulled; 0 pulls always.
	Age   time.Duration
	Build *Build // nil for an image that is not built
	// AllowUnsafe lets the Dockerfile do what buildcontext.Dockerfile.Check refuses. The user has allowed it.
	AllowUnsafe bool
	// Exclude is what a build does not get, as in fumehood.PrepareOptions.
	Exclude []string
}

// When an image is pulled.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// Build says how an image is built.
type Build struct {
	Context    string // the absolute path of a folder; empty for an empty one, with Inline
	Dockerfile string // absolute, or relative to Context
	Inline     string // the Dockerfile's text, in place of Dockerfile
	Args       map[string]string
	Target     string
	Network    string
	Labels     map[string]string
	Tags       []string // more names
	CacheFrom  []string
	ExtraHosts []string // "name:address"
	Ulimits    []Ulimit
	ShmSize    int64 // bytes; 0 means the Engine's choice
	NoCache    bool  // runs every step, where anything is built
	Pull       bool  // pulls the images that it is built on, even if they are there
	Secrets    []Secret
}

// Ulimit bounds a resource of each process of a build's steps.
type Ulimit struct {
	Name       string
	Soft, Hard int64
}

// Secret is what steps of a build may mount; BuildKit alone knows them.
type Secret struct {
	ID      string
	File    string // the absolute path of the file that holds it; empty for Content
	Content string
}

// Read returns what the secret holds. A file has to be a regular one of at most 4 MiB.
func (s Secret) Read() ([]byte, error) {
	if s.File == "" {
		return []byte(s.Content), nil
	}
	return hostpath.ReadFile(s.File, maxFile)
}
