// Package compose has the Compose files of projects: it loads them, checks them against what is allowed, and makes of them what is
// run. It is pure, knows no engine, and is the only importer of compose-go, but for internal/composesdk.
package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/consts"
	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
)

const opLoad = "load compose project"

// maxFile bounds what is read of one Compose file.
const maxFile = 4 << 20

// ofProject is how messages call the folder of a project.
const ofProject = "the project's folder"

// loaded is what is known of a project that came from files.
type loaded struct {
	as       *types.Project // as the files have it, by which Apply begins
	model    map[string]any // the same, as compose-go has merged it
	gate     hostpath.Gate
	places   places
	settings settings
	internal bool     // its networks reach nothing outside
	order    []string // its services as the files have them
	notes    []Change // what was changed or let pass before any policy
}

// Load reads a project as Compose does, for a sandbox of the given name, and refuses what a sandbox cannot
// honour and, unless src allows it, what breaks the isolation. Of this process's environment it sees the
// variables that src names, and nothing else. Its errors are ErrConfig; they name file, service and key.
func Load(ctx context.Context, name string, src fumehood.Compose) (*Project, error) {
	l := &loading{name: name, src: src}
	p, err := l.load(ctx)
	if err != nil {
		return nil, &LoadError{l.problem(ctx, err), l.env}
	}
	return p, nil
}

// expand puts variables into a text. One that is not set is among the project's notes, and not logged besides.
func expand(text string, lookup template.Mapping) (string, error) {
	return template.SubstituteWithOptions(text, lookup, template.WithoutLogging)
}

// LoadError is the error of Load. Its text may have values of the project's variables, as far as they were read.
type LoadError struct {
	error
	Variables map[string]string
}

func (e *LoadError) Unwrap() error { return e.error }

// loading is one Load under way.
type loading struct {
	name string
	src  fumehood.Compose

	files    []types.ConfigFile
	dir      string
	env      types.Mapping
	places   places
	gate     hostpath.Gate
	scanned  int            // files that were scanned
	services int            // what they have of them
	size     int            // what they come to, see maxSize
	weights  map[string]int // the same without what services extend, of each file
}

func (l *loading) load(ctx context.Context) (*Project, error) {
	if err := l.read(); err != nil {
		return nil, err
	}
	if err := l.environment(); err != nil {
		return nil, err
	}
	profiles := l.src.Profiles
	if len(profiles) == 0 && l.env[consts.ComposeProfiles] != "" {
		profiles = strings.Split(l.env[consts.ComposeProfiles], ",")
	}
	details := types.ConfigDetails{WorkingDir: l.dir, ConfigFiles: l.files, Environment: maps.Clone(l.env)}
	details.Environment[consts.ComposeProjectName] = l.name
	for _, f := range l.files {
		if err := l.scan(f.Filename, f.Content, base{l.dir, l.dir}, details.Environment); err != nil {
			return nil, err
		}
	}
	options := []func(*loader.Options){
		loader.WithProfiles(profiles), loader.WithoutUnnecessaryResources,
		func(o *loader.Options) {
			o.SetProjectName(l.name, true)
			o.SkipResolveEnvironment, o.SkipResolveLabels = true, true // until the gate has let the files pass
			o.Interpolate.Substitute = expand
		},
	}
	model, err := loader.LoadModelWithContext(ctx, details, options...)
	if err != nil {
		return nil, err
	}
	project, err := loader.ModelToProject(model, loader.ToOptions(&details, options), details)
	if err != nil {
		return nil, err
	}
	if project, err = l.readServiceFiles(project); err != nil {
		return nil, err
	}
	p := &Project{project: project, loaded: &loaded{as: project, model: model, gate: l.gate, places: l.places, notes: l.unset()}}
	err = p.settle(l.src)
	for i := range p.notes {
		p.notes[i].From, p.notes[i].To = l.mask(p.notes[i].From), l.mask(p.notes[i].To)
	}
	return p, err
}

// read reads the files and finds the project's folder.
func (l *loading) read() error {
	if l.src.Dockerfile != "" {
		return l.generate()
	}
	if len(l.src.Files) == 0 {
		return errors.New("no compose file is given")
	}
	for _, name := range l.src.Files {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		content, err := hostpath.ReadFile(path, maxFile)
		if err != nil {
			return err
		}
		l.files = append(l.files, types.ConfigFile{Filename: path, Content: content})
		l.places.add(path, content)
	}
	dir := l.src.Dir
	if dir == "" {
		dir = filepath.Dir(l.files[0].Filename)
	}
	var err error
	if l.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	l.gate, err = hostpath.NewGate(ofProject, l.dir, l.src.AllowRead...)
	return err
}

// readServiceFiles reads the variables and labels that services have in files.
func (l *loading) readServiceFiles(project *types.Project) (*types.Project, error) {
	for _, name := range slices.Sorted(maps.Keys(project.Services)) {
		svc := project.Services[name]
		paths := slices.Clone(svc.LabelFiles)
		for _, f := range svc.EnvFiles {
			paths = append(paths, f.Path)
		}
		for _, path := range paths {
			if err := l.gate.File(path, maxFile); err != nil {
				return nil, fmt.Errorf("service %q: %w", name, err)
			}
		}
		env := maps.Clone(project.Environment)
		for k, v := range svc.Environment {
			if v != nil && len(*v) > len(env[k]) {
				env[k] = *v
			}
		}
		if err := l.measureFiles(paths, env); err != nil {
			return nil, fmt.Errorf("service %q: %w", name, err)
		}
	}
	project, err := project.WithServicesEnvironmentResolved(true)
	if err != nil {
		return nil, err
	}
	return project.WithServicesLabelsResolved(false)
}

// environment gathers what interpolation sees: above all what the caller gives, then the named variables of
// this process, then the env files.
func (l *loading) environment() error {
	l.env = types.Mapping{}
	for _, k := range l.src.HostEnv {
		if v, ok := os.LookupEnv(k); ok {
			l.env[k] = v
		}
	}
	maps.Copy(l.env, l.src.Env)
	files := slices.Clone(l.src.EnvFiles)
	if len(files) == 0 {
		var err error
		if files, err = l.dotEnv(l.dir); err != nil {
			return err
		}
	}
	vars, err := l.readVariables(l.env, files)
	if err != nil {
		return err
	}
	l.env = l.env.Merge(vars)
	return nil
}

// dotEnv is the file .env of a folder, where there is one that the gate lets pass.
func (l *loading) dotEnv(dir string) ([]string, error) {
	file := filepath.Join(dir, ".env")
	info, err := hostpath.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && info.IsDir():
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []string{file}, l.gate.File(file, maxFile)
}

// readVariables reads files of variables, each in time. A value may refer to those before it.
func (l *loading) readVariables(env types.Mapping, files []string) (map[string]string, error) {
	if err := l.measureFiles(files, env); err != nil {
		return nil, err
	}
	seen := maps.Clone(env)
	return hostpath.InTime(strings.Join(files, ", "), func() (map[string]string, error) { return dotenv.GetEnvFromFile(seen, files) })
}

// unset notes the variables that are empty because nothing sets them, which Compose warns of.
func (l *loading) unset() []Change {
	var notes []Change
	seen := map[string]bool{}
	for i, root := range l.places.roots {
		var dict map[string]any
		if root.Decode(&dict) != nil {
			continue
		}
		vars := template.ExtractVariables(dict, nil)
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			v := vars[name]
			if _, ok := l.env[name]; ok || seen[name] || v.Required || v.DefaultValue != "" || v.PresenceValue != "" || name == consts.ComposeProjectName {
				continue
			}
			seen[name] = true
			notes = append(notes, Change{
				Key:    "${" + name + "}",
				Reason: "it is not set, and so empty, in " + l.places.files[i] + "; of this process's variables a project sees those that are named",
			})
		}
	}
	return notes
}

// problem gives a failure its class, and the line that it speaks of.
func (l *loading) problem(ctx context.Context, err error) error {
	var ours *fumehood.Error
	switch {
	case ctx.Err() != nil:
		return &fumehood.Error{Op: opLoad, Class: fumehood.ErrCancelled, Err: fumehood.Ended(ctx)}
	case !errors.As(err, &ours):
		ours = &fumehood.Error{Op: opLoad, Class: fumehood.ErrConfig, Err: errors.New(l.places.locate(err.Error()))}
	}
	ours.Err = errors.New(l.mask(ours.Err.Error()))
	return ours
}

// mask replaces values of this process's variables, which belong into no message and no log, by their names.
func (l *loading) mask(text string) string {
	for _, k := range l.src.HostEnv {
		if v := os.Getenv(k); len(v) > 3 { // what is shorter is anywhere
			text = strings.ReplaceAll(text, v, "${"+k+"}")
		}
	}
	return text
}

// settle decides all that does not depend on a policy.
func (p *Project) settle(src fumehood.Compose) error {
	p.order = p.places.order(p.as.Services)
	if p.as.Networks == nil {
		p.as.Networks = types.Networks{}
	}
	if p.as.Volumes == nil {
		p.as.Volumes = types.Volumes{}
	}
	if p.as.Configs == nil {
		p.as.Configs = types.Configs{}
	}
	var err error
	if p.settings, err = p.parseSettings(); err != nil {
		return err
	}
	p.internal = p.settings.egress == "" && src.Egress == ""
	p.nameServices()
	c := &checking{Project: p, allow: src.AllowUnsafe, taken: map[string]bool{}}
	if err := c.check(); err != nil {
		return err
	}
	p.main, err = p.defaultService(src.Service)
	return err
}

// defaultService is the service that commands go to where none is named.
func (p *Project) defaultService(wanted string) (string, error) {
	var started, marked []string
	for _, name := range p.order {
		isDefault, err := p.flag(name, "x-default")
		if err != nil {
			return "", err
		}
		svc := p.as.Services[name]
		if svc.GetScale() == 0 {
			continue
		}
		started = append(started, name)
		if isDefault {
			marked = append(marked, name)
		}
	}
	switch {
	case len(started) == 0:
		return "", errors.New("there is no service to start: none is active, or all have a scale of 0")
	case wanted != "":
		if !slices.Contains(started, wanted) {
			return "", fmt.Errorf("there is no service %q; there are: %s", wanted, strings.Join(started, ", "))
		}
		return wanted, nil
	case slices.Contains(started, DefaultService):
		return DefaultService, nil
	case len(marked) > 1:
		return "", p.bad(marked[1], "x-default", "service %s says so too", marked[0])
	case len(marked) == 1:
		return marked[0], nil
	}
	return started[0], nil
}

// flag is a service's extension that is true or false.
func (p *Project) flag(service, key string) (bool, error) {
	v, ok := p.as.Services[service].Extensions[key]
	if !ok {
		return false, nil
	}
	b, ok := v.(bool)
	if !ok {
		return false, p.bad(service, key, "wanted true or false")
	}
	return b, nil
}

// nameServices makes references to containers of the project, by their container_name, those to their
// services: the names will be others.
func (p *Project) nameServices() {
	byName := map[string]string{}
	for name, svc := range p.as.Services {
		if svc.ContainerName != "" {
			byName[svc.ContainerName] = name
		}
	}
	for _, name := range p.order {
		svc := p.as.Services[name]
		refer := func(key, ref string) string {
			container, rest, _ := strings.Cut(strings.TrimPrefix(ref, types.ContainerPrefix), ":")
			other, ok := byName[container]
			if !ok || !strings.HasPrefix(ref, types.ContainerPrefix) || other == name {
				return ref
			}
			if _, ok := svc.DependsOn[other]; !ok {
				depends := maps.Clone(svc.DependsOn)
				if depends == nil {
					depends = types.DependsOnConfig{}
				}
				depends[other] = types.ServiceDependency{Condition: types.ServiceConditionStarted, Required: true}
				svc.DependsOn = depends
			}
			to := types.ServicePrefix + other
			if key == "volumes_from" {
				to = strings.TrimSuffix(other+":"+rest, ":")
			}
			p.notes = append(p.notes, Change{Service: name, Key: key, From: ref, To: to, Reason: "containers get names of their own"})
			return to
		}
		svc.NetworkMode = refer("network_mode", svc.NetworkMode)
		svc.Pid = refer("pid", svc.Pid)
		svc.Ipc = refer("ipc", svc.Ipc)
		for i, ref := range svc.VolumesFrom {
			svc.VolumesFrom[i] = refer("volumes_from", ref)
		}
		p.as.Services[name] = svc
	}
}
