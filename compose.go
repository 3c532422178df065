package fumehood

import (
	"strings"
	"time"
)

// Compose says which Compose project to start in place of one image. Nothing of this process's environment
// is visible to it but what HostEnv names.
type Compose struct {
	// Files are Compose files, each over the ones before it; absolute, or relative to this process's directory.
	Files []string `json:"files,omitempty"`
	// Dockerfile, in place of Files, makes a project of one service that is built by it, has no network and only
	// idles; Dir is the build's context then.
	Dockerfile string `json:"dockerfile,omitempty"`
	// Dir is the project's folder, to which its relative paths refer. Empty means the first file's.
	Dir string `json:"dir,omitempty"`
	// Profiles are those that are active.
	Profiles []string `json:"profiles,omitempty"`
	// EnvFiles are read for interpolation, as by `docker compose --env-file`. Without any, it is the
	// folder's .env, if there is one.
	EnvFiles []string `json:"env_files,omitempty"`
	// Env is what interpolation sees besides, byte for byte, and wins over all else.
	Env map[string]string `json:"env,omitempty"`
	// HostEnv names variables of this process that interpolation may see. By default it sees none.
	HostEnv []string `json:"host_env,omitempty"`
	// Service is the default service. Empty means the one named "default", else the one that says
	// x-default: true, else the first.
	Service string `json:"service,omitempty"`
	// Egress is EgressInternet, or empty: then the project's networks are internal, unless it says
	// x-fumehood: {egress: internet}.
	Egress string `json:"egress,omitempty"`
	// AllowUnsafe allows, and logs, what breaks the isolation: privileged services, the host's namespaces,
	// its devices, mounts of the Docker socket or of other paths that are not safe.
	AllowUnsafe bool `json:"allow_unsafe,omitempty"`
	// AllowRead are files and folders outside the project's folder that the project may read, and mount read-only.
	AllowRead []string `json:"allow_read,omitempty"`
	// Prebuilt never pulls or builds an image: what is missing is an ErrConfig that lists all of it.
	Prebuilt bool `json:"prebuilt,omitempty"`
	// ReadyTimeout bounds the time from the first container's start until all services are ready. 0 means that each
	// service has the time that its health check can take, at most 600 s, and 600 s where it has none.
	ReadyTimeout time.Duration `json:"-"`
	// PullTimeout and BuildTimeout bound all pulls and all builds. 0 means one hour.
	PullTimeout  time.Duration `json:"-"`
	BuildTimeout time.Duration `json:"-"`
}

// EgressInternet lets a project's networks reach the internet.
const EgressInternet = "internet"

// validateCompose checks a spec with a Compose project.
func (s *Spec) validateCompose(bad func(string, ...any) error) error {
	c := s.Compose
	for field, set := range map[string]bool{
		"Image": s.Image != "", "Env": len(s.Env) > 0, "User": s.User != "", "Dir": s.Dir != "", "Network": s.Network.Mode != "",
		"Ports": len(s.Ports) > 0, "Mounts": len(s.Mounts) > 0,
	} {
		if set {
			return bad("%s and Compose exclude each other: the Compose file says that", field)
		}
	}
	if s.AllowUnsafe {
		return bad("AllowUnsafe and Compose exclude each other: set Compose.AllowUnsafe")
	}
	if (len(c.Files) == 0) == (c.Dockerfile == "") {
		return bad("a Compose project needs a file or more, or a Dockerfile in their place")
	}
	if c.Egress != "" && c.Egress != EgressInternet {
		return bad("there is no egress %q, only %q", c.Egress, EgressInternet)
	}
	for k, v := range c.Env {
		if err := checkEnv(k, v); err != nil {
			return bad("%w", err)
		}
	}
	for _, k := range c.HostEnv {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return bad("%q is no name of an environment variable", k)
		}
	}
	if c.ReadyTimeout < 0 || c.PullTimeout < 0 || c.BuildTimeout < 0 {
		return bad("a time limit is negative")
	}
	return nil
}
