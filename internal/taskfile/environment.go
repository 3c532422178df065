package taskfile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/session/spec"
)

// environment is an Environment in the form for a provider, without the task's limits.
type environment struct {
	fumehood.Spec
	building *building // nil if it has no build
}

// with returns the sandbox with these limits. For each limit the first value that is set counts, and then that of
// the environment.
func (e environment) with(limits ...spec.Limits) fumehood.Spec {
	s := e.Spec
	for _, l := range slices.Backward(limits) {
		s.Limits = fumehood.Limits{
			Memory: cmp.Or(l.Memory, s.Limits.Memory), CPUs: cmp.Or(l.CPUs, s.Limits.CPUs), PIDs: cmp.Or(l.PIDs, s.Limits.PIDs),
			Disk: cmp.Or(l.Disk, s.Limits.Disk),
		}
	}
	return s
}

// environments holds the environments of a task, each read once.
type environments struct {
	opts     ReadOptions
	known    map[*Environment]*environment // nil for one that could not be read
	trees    map[string]error              // of hidden paths, by path
	provider string                        // the provider that all need; empty if none was read

	buildings []*building
}

// either returns the first of two environments that is set, or the default image. It records a problem and returns nil
// if that cannot be read.
func (all *environments) either(own *Environment, from origin, otherwise *Environment, other origin) *environment {
	switch {
	case own != nil:
		return all.of(own, from)
	case otherwise != nil:
		return all.of(otherwise, other)
	}
	from.bad(0, all.need(spec.TypeDocker))
	return &environment{Spec: fumehood.Spec{AllowUnsafe: all.opts.AllowUnsafe}}
}

// of reads an environment. It records a problem and returns nil if that fails.
func (all *environments) of(e *Environment, from origin) *environment {
	if known, ok := all.known[e]; ok {
		return known
	}
	all.known[e] = nil
	env, kind, err := e.readSpec(from.source, all.opts)
	if err == nil {
		err = all.need(kind)
	}
	if err != nil {
		errs := []error{err}
		if missing, ok := errors.AsType[missingFiles](err); ok {
			errs = missing
		}
		for _, err := range errs {
			from.bad(e.line, fmt.Errorf("environment: %w", err))
		}
		return nil
	}
	if env.building != nil {
		all.buildings = append(all.buildings, env.building)
	}
	all.known[e] = &env
	return &env
}

// allow returns the error about keys that a row of data must not set. If the user allows unsafe settings, it logs
// the error instead. Samples in the task file are not checked.
func (all *environments) allow(s *Sample, err error) error {
	switch {
	case err == nil || !s.source.data:
		return nil
	case !all.opts.AllowUnsafe:
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: err, Hint: "write it in the task file, or allow it (--allow-unsafe)"}
	case all.opts.Logger != nil:
		all.opts.Logger.Warn("a row of data weakens isolation, as the run allows", "at", s.at, "sample", s.ID, "reason", err)
	}
	return nil
}

// need records that a provider is needed. All environments must need the same one.
func (all *environments) need(provider string) error {
	if all.provider != "" && all.provider != provider {
		return fmt.Errorf("some environments are of type %s, and some of type %s: a task has one type", all.provider, provider)
	}
	all.provider = provider
	return nil
}

// readSpec returns the sandbox that an environment describes, and the provider that it needs.
func (e *Environment) readSpec(from source, opts ReadOptions) (environment, string, error) {
	given := 0
	for _, there := range []bool{e.File != "", len(e.Compose) > 0, e.Dockerfile != "", e.Image != ""} {
		if there {
			given++
		}
	}
	plain := !e.isFile()
	switch {
	case given > 1:
		return environment{}, "", errors.New("it has more than one of file, compose, dockerfile and image")
	case !plain && (e.User != "" || e.Workdir != "" || len(e.Env) > 0 || e.Network != "" || e.Runtime != "" || e.Seccomp != "" || e.ShmSize != 0 || len(e.Tmpfs) > 0):
		return environment{}, "", errors.New("user, workdir, env, network, runtime, seccomp, shm_size and tmpfs go with an image only: the file defines them itself")
	case e.Service != "" && len(e.Compose) == 0 && e.File == "":
		return environment{}, "", errors.New("service needs a Compose project")
	case plain:
		if err := errors.Join(spec.CheckNetwork("network", e.Network), spec.CheckSeccomp("seccomp", e.Seccomp)); err != nil && !opts.AllowUnsafe {
			return environment{}, "", err
		}
		return environment{Spec: fumehood.Spec{
			Image: e.Image, User: e.User, Dir: e.Workdir, Env: e.Env, Network: fumehood.Network{Mode: e.Network}, Runtime: e.Runtime,
			Seccomp: e.Seccomp, ShmSize: e.ShmSize, Tmpfs: e.Tmpfs, AllowUnsafe: opts.AllowUnsafe,
		}}, spec.TypeDocker, nil
	}
	var found spec.Found
	switch {
	case e.Dockerfile != "":
		found = spec.Found{Kind: spec.FoundDockerfile, Files: []string{inDir(from.dir, e.Dockerfile)}}
	case e.File != "":
		path := inDir(from.dir, e.File)
		err := from.gate.Check(path)
		if err == nil {
			found, err = spec.Discover(path, append([]string{from.dir}, opts.AllowRead...)...)
		}
		if err != nil {
			return environment{}, "", err
		}
	default:
		found.Kind = spec.FoundCompose
		for _, file := range e.Compose {
			found.Files = append(found.Files, inDir(from.dir, file))
		}
	}
	if err := from.environmentFiles(found.Files); err != nil {
		return environment{}, "", err
	}
	switch found.Kind {
	case spec.FoundCompose:
		// The user has named the task, so its folder is as trusted as the project's.
		c := &fumehood.Compose{Files: found.Files, Service: e.Service, AllowRead: append([]string{from.dir}, opts.AllowRead...), AllowUnsafe: opts.AllowUnsafe}
		return environment{Spec: fumehood.Spec{Compose: c}}, spec.TypeDocker, nil
	case spec.FoundDockerfile:
		c := &fumehood.Compose{Dockerfile: found.Files[0], Dir: filepath.Dir(found.Files[0]), AllowRead: opts.AllowRead}
		return environment{Spec: fumehood.Spec{Compose: c}}, spec.TypeDocker, nil
	case spec.FoundEnvironment:
		return ofSpec(found.Files[0], from.dir, opts)
	case spec.FoundNothing: // not reached: it would be an error of Discover
	}
	return environment{}, "", fmt.Errorf("%s describes no sandbox", e.File)
}

// missingFiles are the errors of files that cannot be read.
type missingFiles []error

func (m missingFiles) Error() string { return errors.Join(m...).Error() }

// environmentFiles returns a missingFiles for files of an environment that cannot be read.
func (from source) environmentFiles(files []string) error {
	var missing missingFiles
	for _, file := range files {
		err := from.gate.File(file, maxSpec)
		if err == nil && !exists(file) {
			err = fmt.Errorf("no such file: %s", file)
		} else if err == nil {
			err = readable(file)
		}
		if err != nil {
			missing = append(missing, err)
		}
	}
	if missing == nil {
		return nil
	}
	return missing
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ofSpec returns the sandbox of an environment spec. Relative paths of mounts are resolved against its folder,
// because there is no workspace. The spec may read the same paths as the task.
func ofSpec(path, taskDir string, opts ReadOptions) (environment, string, error) {
	e, err := spec.Load(path)
	if err != nil {
		return environment{}, "", err
	}
	if len(e.Setup.Commands)+len(e.Setup.EvalCommands) > 0 {
		return environment{}, "", fmt.Errorf("%s has a setup, which only sessions run: write it as the task's setup", path)
	}
	e.AllowRead, e.AllowUnsafe = append([]string{taskDir}, opts.AllowRead...), opts.AllowUnsafe
	copied := *e
	copied.Docker.MountWorkspace = new(false)
	env := opts.Env
	if env == nil {
		env = os.Environ()
	}
	dir := filepath.Dir(path)
	s, notes, err := copied.Sandbox(spec.SandboxOptions{Volumes: spec.VolumeLayers{Workspace: dir}, Host: env, GOOS: runtime.GOOS})
	if opts.Logger != nil {
		for _, note := range notes {
			opts.Logger.Warn(note, "spec", path)
		}
	}
	if e.Type == spec.TypeLocal {
		s.Dir = "" // each sandbox has its own folder
	}
	s.ConfigFile = path
	described := environment{Spec: s}
	if e.Type == spec.TypeDocker && e.Docker.Build != nil {
		described.building = &building{env: e}
		dir, noContext := e.BuildContext()
		if noContext == nil {
			_, noContext = image.ReadDockerfile(dir, e.Docker.WithDefaults().Build.Dockerfile)
		}
		err = errors.Join(err, noContext)
	}
	return described, e.Type, err
}
