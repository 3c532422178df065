package image

import (
	"time"

	"github.com/fumehood/fumehood/internal/hostpath"
)

// Source describes where a service's image comes from.
type Source struct {
	Service  string
	Project  string // the project's folder; empty for an image without a project
	Image    string // the reference; with Build, a further name of the built image, or empty
	Platform string // "linux/arm64"; empty means the daemon's
	Pull     string // PullMissing, PullAlways or PullNever
	// Age, with PullAlways, is the maximum age of a local image that is not pulled again. 0 means always pull.
	Age   time.Duration
	Build *Build // nil for an image that is not built
	// Builtin gives the built image also the name Image in the store.
	Builtin bool
	// AllowUnsafe allows Dockerfiles that image.Dockerfile.Check rejects. The user has allowed it.
	AllowUnsafe bool
	// HostEnv names variables of this process whose values must not appear in messages.
	HostEnv []string
	// Exclude lists files that the build does not get, as in fumehood.PrepareOptions.
	Exclude []string
}

// BuiltinPrefix is the beginning of the names of built-in images.
const BuiltinPrefix = "fumehood-builtin/"

// Pull policies.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// Build describes how an image is built.
type Build struct {
	Context    string // the absolute path of a folder; empty for an empty one, with Inline
	Dockerfile string // absolute, or relative to Context
	Inline     string // the Dockerfile's text, instead of Dockerfile
	Args       map[string]string
	Target     string
	Network    string
	Labels     map[string]string
	Tags       []string // more names
	CacheFrom  []string
	ExtraHosts []string // "name:address"
	Ulimits    []Ulimit
	ShmSize    int64 // bytes; 0 means the Engine's choice
	NoCache    bool  // run every step, if anything is built
	Pull       bool  // pull base images even if they are present
	Secrets    []Secret
}

// Ulimit limits a resource of each process of a build's steps.
type Ulimit struct {
	Name       string
	Soft, Hard int64
}

// Secret is a secret that steps of a build may mount. Only BuildKit supports it.
type Secret struct {
	ID      string
	File    string // absolute path of the file with the secret; if empty, Content is the secret
	Content string
}

// maxSecret is the maximum size of a file with a secret, in bytes.
const maxSecret = 4 << 20

// Read returns the contents of the secret. A file must be a regular file of at most 4 MiB.
func (s Secret) Read() ([]byte, error) {
	if s.File == "" {
		return []byte(s.Content), nil
	}
	return hostpath.ReadFile(s.File, maxSecret)
}
