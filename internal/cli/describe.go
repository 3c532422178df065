package cli

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/session/spec"
)

// describe completes the spec from a command's flags with the file or folder that -f names. A Compose project or
// Dockerfile sets these values itself, and excludes such flags. Flags override an environment spec.
func (a *commandLine) describe(f *projectFlags, s fumehood.Spec) (app.Described, error) {
	d := app.Described{Spec: s, Provider: a.provider}
	found, err := f.discover()
	if err != nil {
		return d, err
	}
	isProject := found.Kind == spec.FoundCompose || found.Kind == spec.FoundDockerfile
	if found.Kind == spec.FoundNothing && f.allowRead != nil && !a.settings.used["allow-read"] {
		return d, usageError("--allow-read needs -f")
	}
	if flag := f.onlyForProjects(a.settings.used["egress"]); flag != "" && !isProject {
		return d, usageError("--%s is for Compose projects: name one with -f", flag)
	}
	switch found.Kind {
	case spec.FoundCompose, spec.FoundDockerfile:
		c, err := f.compose()
		if err != nil {
			return d, usageError("%w", err)
		}
		d.Spec = a.withoutSettings(s, false) // services without limits of their own get those of the settings
		if flag := notForProjects(d.Spec); flag != "" {
			return d, usageError("--%s cannot be combined with a Compose project or Dockerfile: set it in the file", flag)
		}
		d.Compose = &c
	case spec.FoundEnvironment:
		if d.Environment, err = spec.Load(found.Files[0]); err != nil {
			return d, err
		}
		f.over(d.Environment)
		d.Provider = d.Environment.Type
		if err := a.checkLocal(d.Environment.File, d.Provider); err != nil {
			return d, err
		}
		if d.Spec, err = a.ofEnvironment(d.Environment, a.withoutSettings(s, true)); err != nil {
			return d, err
		}
	case spec.FoundNothing:
		d.AllowUnsafe = f.allowUnsafe
		if a.provider == spec.TypeLocal && a.settings.used["image"] {
			d.Image = "" // the setting is for sandboxes that have an image
		}
	}
	if err := d.Validate(); err != nil {
		return d, usageError("%w", err)
	}
	return d, nil
}

// ofEnvironment returns the sandbox of an environment spec, overridden by the flags in s. There is no workspace:
// relative paths of mounts start at the spec's folder.
func (a *commandLine) ofEnvironment(e *spec.Environment, s fumehood.Spec) (fumehood.Spec, error) {
	dir, err := filepath.Abs(filepath.Dir(e.File))
	if err != nil {
		return s, err
	}
	if n := len(e.Setup.Commands); n > 0 {
		a.log.Warn("the setup of "+e.File+" is not run: use `fumehood session run` for that", "commands", n)
	}
	env := *e
	env.Docker.MountWorkspace = new(false)
	sandboxSpec, notes, err := env.Sandbox(spec.SandboxOptions{
		Volumes: spec.VolumeLayers{Workspace: dir, Spawn: s.Mounts}, Image: s.Image, User: s.User, Network: s.Network.Mode, Env: s.Env, Host: os.Environ(), GOOS: runtime.GOOS,
	})
	if err != nil {
		return s, err
	}
	for _, note := range notes {
		a.log.Warn(note)
	}
	if s.Dir != "" || e.Type == spec.TypeLocal {
		sandboxSpec.Dir = s.Dir
	}
	sandboxSpec.Limits = fumehood.Limits{
		Memory: cmp.Or(s.Limits.Memory, sandboxSpec.Limits.Memory), CPUs: cmp.Or(s.Limits.CPUs, sandboxSpec.Limits.CPUs), PIDs: cmp.Or(s.Limits.PIDs, sandboxSpec.Limits.PIDs),
		Disk: cmp.Or(s.Limits.Disk, sandboxSpec.Limits.Disk),
	}
	sandboxSpec.ShmSize, sandboxSpec.Tmpfs = cmp.Or(s.ShmSize, sandboxSpec.ShmSize), addTmpfs(sandboxSpec.Tmpfs, s.Tmpfs)
	sandboxSpec.Name, sandboxSpec.Keep, sandboxSpec.TTL = s.Name, s.Keep, s.TTL
	return sandboxSpec, nil
}

// addTmpfs returns the file systems of both lists. Those of more replace others at the same path, as mounts do.
func addTmpfs(all, more []string) []string {
	at := func(text string) string {
		t, _ := fumehood.ParseTmpfs(text) // Validate reports errors
		return t.Container
	}
	all = slices.DeleteFunc(slices.Clone(all), func(one string) bool {
		return slices.ContainsFunc(more, func(other string) bool { return at(one) == at(other) })
	})
	return append(all, more...)
}

// withoutSettings drops values that come from settings and not from flags, so that they don't override a file.
// It drops limits only if limits is true.
func (a *commandLine) withoutSettings(s fumehood.Spec, limits bool) fumehood.Spec {
	for flag, value := range map[string]*string{"image": &s.Image, "user": &s.User, "workdir": &s.Dir, "network": &s.Network.Mode} {
		if a.settings.used[flag] {
			*value = ""
		}
	}
	if limits && a.settings.used["memory"] {
		s.Limits.Memory = 0
	}
	if limits && a.settings.used["cpus"] {
		s.Limits.CPUs = 0
	}
	if limits && a.settings.used["pids"] {
		s.Limits.PIDs = 0
	}
	if limits && a.settings.used["disk"] {
		s.Limits.Disk = 0
	}
	return s
}

// building logs a step of an image build.
func (a *commandLine) building(tag, step string) {
	a.tell("building %s: %s", tag, step)
}

// notForProjects returns the first flag of a spec that a Compose project or Dockerfile sets instead, or "".
func notForProjects(s fumehood.Spec) string {
	for _, flag := range []struct {
		name string
		set  bool
	}{
		{"image", s.Image != ""},
		{"env", len(s.Env) > 0},
		{"user", s.User != ""},
		{"workdir", s.Dir != ""},
		{"network", s.Network.Mode != ""},
		{"volume", len(s.Mounts) > 0},
		{"shm-size", s.ShmSize != 0},
		{"tmpfs", len(s.Tmpfs) > 0},
	} {
		if flag.set {
			return flag.name
		}
	}
	return ""
}

// onlyForProjects returns the first given flag that applies to projects only, or "". An --egress that comes from
// the settings does not count.
func (f *projectFlags) onlyForProjects(egressIsSetting bool) string {
	for _, flag := range []struct {
		name string
		set  bool
	}{
		{"service", f.service != ""},
		{"profile", f.profiles != nil},
		{"env-file", f.envFiles != nil},
		{"host-env", f.hostEnv != nil},
		{"sample-metadata", f.metadata != nil},
		{"egress", f.egress != "" && !egressIsSetting},
		{"prebuilt", f.prebuilt},
	} {
		if flag.set {
			return flag.name
		}
	}
	return ""
}

// discover finds out what the -f flags name, if any. Several files are allowed only if all are Compose files.
func (f *projectFlags) discover() (spec.Found, error) {
	all := spec.Found{Kind: spec.FoundNothing}
	for i, path := range f.files {
		found, err := spec.Discover(path, f.allowRead...)
		if err != nil {
			return spec.Found{}, err
		}
		if i > 0 && (all.Kind != spec.FoundCompose || found.Kind != spec.FoundCompose) {
			return spec.Found{}, usageError("%w", errors.New("-f may be repeated only for Compose files"))
		}
		all.Kind = found.Kind
		all.Files = append(all.Files, found.Files...)
	}
	return all, nil
}
