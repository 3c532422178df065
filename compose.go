package fumehood

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Compose selects a Compose project to start instead of one image. The project sees no variable of this process's
// environment unless HostEnv names it.
type Compose struct {
	// Files are Compose files; later ones override earlier ones. Paths are absolute or relative to this process's
	// working directory.
	Files []string `json:"files,omitempty"`
	// Content, instead of Files, is the text of a Compose file in YAML or JSON, to which everything applies that
	// applies to a file. Its relative paths need Dir. ComposeOf returns the content for a Go value.
	Content string `json:"content,omitempty"`
	// Dockerfile, instead of Files, defines a project of one service built from it, which has no network and only
	// idles. Dir is then the build context.
	Dockerfile string `json:"dockerfile,omitempty"`
	// Dir is the project's folder, against which relative paths are resolved. Empty means the folder of the first
	// file or, with Content, no folder: a relative path is then an ErrConfig, and no .env file is read.
	Dir string `json:"dir,omitempty"`
	// Profiles are the active profiles.
	Profiles []string `json:"profiles,omitempty"`
	// EnvFiles are read for interpolation, as by `docker compose --env-file`. If empty, the folder's .env file is
	// read, if it exists.
	EnvFiles []string `json:"env_files,omitempty"`
	// Env adds variables for interpolation, byte for byte. They take precedence over all others.
	Env map[string]string `json:"env,omitempty"`
	// HostEnv names variables of this process that interpolation may see. By default it sees none.
	HostEnv []string `json:"host_env,omitempty"`
	// Service is the default service. Empty means the service named "default", else the one with x-default: true,
	// else the first.
	Service string `json:"service,omitempty"`
	// Egress is EgressInternet or empty. If empty, the project's networks are internal, unless the project sets
	// x-fumehood: {egress: internet}.
	Egress string `json:"egress,omitempty"`
	// Offline makes it an ErrConfig if a service could reach something outside the project's networks, whatever its files set:
	// by egress, the Engine's own network, an existing network or that of another container. It excludes Egress and
	// AllowUnsafe. Images are pulled and built, and ports published on the loopback address, as without it.
	Offline bool `json:"offline,omitempty"`
	// AllowUnsafe allows, and logs, settings that break isolation: privileged services, the host's namespaces and
	// devices, mounts of the Docker socket and of other unsafe paths.
	AllowUnsafe bool `json:"allow_unsafe,omitempty"`
	// AllowRead lists files and folders outside the project's folder that the project may read and mount read-only.
	AllowRead []string `json:"allow_read,omitempty"`
	// Prebuilt disables pulling and building of images. Missing images are an ErrConfig that lists all of them.
	Prebuilt bool `json:"prebuilt,omitempty"`
	// ReadyTimeout limits the time from the first container's start until all services are ready. 0 gives each
	// service the time that its health check can take, up to 600 s, or 600 s if it has no health check.
	ReadyTimeout time.Duration `json:"-"`
	// PullTimeout and BuildTimeout limit the total time of all pulls and of all builds. 0 means one hour.
	PullTimeout  time.Duration `json:"-"`
	BuildTimeout time.Duration `json:"-"`
}

// ComposeOf returns a project that a Go value describes instead of a file: a map, or a struct whose JSON has the
// form of a Compose file. In its texts, as in a file, $NAME stands for a variable and $$ for one $. The default
// service is the first in the value's JSON, where the keys of maps are sorted.
func ComposeOf(project any) (*Compose, error) {
	content, err := json.Marshal(project)
	if err == nil && replaced.Match(content) {
		err = errors.New("a text is not valid UTF-8, which JSON requires")
	}
	if err != nil {
		return nil, &Error{Op: "encode compose project", Class: ErrConfig, Err: err}
	}
	return &Compose{Content: string(content)}, nil
}

// replaced matches what json.Marshal writes for bytes that are not UTF-8.
var replaced = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\ufffd`)

// EgressInternet gives a project's networks internet access.
const EgressInternet = "internet"

// alsoForProjects are the fields of a Spec that a sandbox of a Compose project has too.
var alsoForProjects = []string{
	"Name", "Compose", "Images", "Runtime", "Seccomp", "Limits", "Keep", "TTL", "Binary", "Labels", "ConfigFile", "Journal", "Logger",
}

// fieldBesideCompose returns the first field that is set although Compose files set it instead, or "".
func (s *Spec) fieldBesideCompose() string {
	for field, value := range reflect.ValueOf(*s).Fields() {
		set := !value.IsZero()
		if kind := value.Kind(); kind == reflect.Map || kind == reflect.Slice {
			set = value.Len() > 0
		}
		if set && !slices.Contains(alsoForProjects, field.Name) {
			return field.Name
		}
	}
	return ""
}

// validateCompose checks a spec that has a Compose project.
func (s *Spec) validateCompose(bad func(string, ...any) error) error {
	c := s.Compose
	if s.AllowUnsafe {
		return bad("AllowUnsafe and Compose exclude each other: set Compose.AllowUnsafe")
	}
	if field := s.fieldBesideCompose(); field != "" {
		return bad("%s and Compose exclude each other: set it in the Compose file", field)
	}
	given := 0
	for _, set := range []bool{len(c.Files) > 0, c.Content != "", c.Dockerfile != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		return bad("a Compose project needs either files, content or a Dockerfile")
	}
	if c.Egress != "" && c.Egress != EgressInternet {
		return bad("unknown egress %q: only %q is supported", c.Egress, EgressInternet)
	}
	if c.Offline && (c.Egress != "" || c.AllowUnsafe) {
		return bad("Offline excludes Egress and AllowUnsafe: with them a service could reach what is outside")
	}
	for k, v := range c.Env {
		if err := checkEnvText(k, v); err != nil {
			return bad("%w", err)
		}
	}
	if err := checkTexts(reflect.ValueOf(*c)); err != nil {
		return bad("%w", err)
	}
	for _, k := range c.HostEnv {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return bad("invalid environment variable name %q", k)
		}
	}
	if c.ReadyTimeout < 0 || c.PullTimeout < 0 || c.BuildTimeout < 0 {
		return bad("a time limit is negative")
	}
	return nil
}
