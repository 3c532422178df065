// Package compose loads the Compose files of projects, checks them against an allow-list, and turns them into the
// projects that run. A sandbox without Compose files is a project too. It calls no engine. Only this package and
// internal/docker/composesdk import compose-go.
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
	"github.com/fumehood/fumehood/internal/alike"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/image"
)

const opLoad = "load compose project"

// maxFile is the maximum size of a Compose file in bytes.
const maxFile = 4 << 20

// ofProject is the name of a project's folder in messages.
const ofProject = "the project's folder"

// Load reads a project as Compose does, for a sandbox with the given name. It rejects settings that a sandbox cannot
// honor and, unless src allows them, settings that break the isolation. Of this process's environment, the project
// sees only the variables that src names. Errors are ErrFile and name file, service and key.
func Load(ctx context.Context, name string, src fumehood.Compose) (*Project, error) {
	l := &loading{name: name, src: src, envs: map[string]types.Mapping{}, entries: map[string]int{}}
	p, err := l.load(ctx)
	if err != nil {
		return nil, &LoadError{l.problem(ctx, err), l.env}
	}
	return p, nil
}

// expand substitutes variables in text. It does not log unset variables: they are among the project's notes.
func expand(text string, lookup template.Mapping) (string, error) {
	return template.SubstituteWithOptions(text, lookup, template.WithoutLogging)
}

// LoadError is the error of Load. Its text may contain values of the project's variables. Variables has those that were
// read before the error.
type LoadError struct {
	error
	Variables map[string]string
}

func (e *LoadError) Unwrap() error { return e.error }

// loading is the state of one call of Load.
type loading struct {
	name string
	src  fumehood.Compose

	files   []types.ConfigFile
	dir     string
	env     types.Mapping
	places  places
	gate    hostpath.Gate
	scanned int                      // number of scanned files
	entries map[string]int           // number of services, networks, volumes, configs and secrets in them, by key
	size    int                      // their estimated size, see maxSize
	weights map[string]int           // the same by file, without extended services
	envs    map[string]types.Mapping // what the files see, by file
	given   types.Mapping            // the variables that are not from files
	hidden  []Warning                // about variables of included files
	outside alike.Errors             // included and extended files that may not be read
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
	if err := l.outside.Join(); err != nil {
		return nil, err
	}
	options := []func(*loader.Options){
		loader.WithProfiles(profiles), loader.WithoutUnnecessaryResources,
		func(o *loader.Options) {
			o.SetProjectName(l.name, true)
			o.SkipResolveEnvironment, o.SkipResolveLabels = true, true // the gate must check the files first
			o.Interpolate.Substitute = expand
		},
	}
	model, project, err := parse(ctx, details, options)
	if err != nil {
		return nil, err
	}
	project, refused := l.readServiceFiles(project)
	p := &Project{as: project, project: project, model: model, gate: l.gate, places: l.places, unset: l.findUnset(), content: l.src.Content}
	for _, u := range p.Unset() {
		p.notes = append(p.notes, Change{Key: "${" + u.Name + "}", Reason: "it is not set, and so empty, in " + u.At + "; " + OnlyNamed})
	}
	err = p.settle(l.src, refused)
	p.warnings = slices.Concat(l.hidden, l.findMisread())
	if err == nil {
		p.warnings = append(p.warnings, p.findSetuid()...)
	}
	for _, w := range p.warnings {
		p.notes = append(p.notes, Change{Key: w.Key, Reason: w.Reason + " (" + w.At + ")"})
	}
	for i := range p.notes {
		p.notes[i].From, p.notes[i].To = l.mask(p.notes[i].From), l.mask(p.notes[i].To)
	}
	return p, err
}

// parse has compose-go load a project. It returns a panic of compose-go as an error: some values of unexpected types,
// such as a date as a path, cause one.
func parse(ctx context.Context, details types.ConfigDetails, options []func(*loader.Options)) (model map[string]any, project *types.Project, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("a value has the wrong type: %v", why)
		}
	}()
	if model, err = loader.LoadModelWithContext(ctx, details, options...); err != nil {
		return nil, nil, err
	}
	project, err = loader.ModelToProject(model, loader.ToOptions(&details, options), details)
	return model, project, err
}

// read reads the files and finds the project's folder.
func (l *loading) read() error {
	switch {
	case l.src.Dockerfile != "":
		return l.generate()
	case l.src.Content != "":
		return l.readContent()
	case len(l.src.Files) == 0:
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
		l.places.addDocuments(path, content)
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

// readServiceFiles reads the services' files of variables and labels. If it refuses one, it reads none, and the project
// it returns is without them.
func (l *loading) readServiceFiles(project *types.Project) (*types.Project, []refusal) {
	var refused []refusal
	for _, name := range slices.Sorted(maps.Keys(project.Services)) {
		refused = append(refused, l.checkServiceFiles(project, project.Services[name])...)
		if n := len(refused); n > 0 && (errors.Is(refused[n-1].err, os.ErrDeadlineExceeded) || errors.Is(refused[n-1].err, errSize)) {
			break // the next ones would take as long
		}
	}
	if len(refused) > 0 {
		return project, refused
	}
	for name, svc := range project.Services {
		var err error
		if svc.Environment, err = serviceEnvironment(project, svc); err != nil {
			return project, []refusal{{err: errors.New(l.places.locate(err.Error()))}}
		}
		svc.EnvFiles = nil
		project.Services[name] = svc
	}
	resolved, err := project.WithServicesLabelsResolved(false)
	if err != nil {
		return project, []refusal{{err: errors.New(l.places.locate(err.Error()))}}
	}
	return resolved, nil
}

// checkServiceFiles checks the files of a service, adds their size to the project's, and parses those with variables.
func (l *loading) checkServiceFiles(project *types.Project, svc types.ServiceConfig) (refused []refusal) {
	refuse := func(key string, err error) {
		at := l.places.find([]string{"services", svc.Name, key})
		refused = append(refused, refusal{at, fmt.Errorf("%s: service %q: %w", at, svc.Name, err)})
	}
	var paths []string
	for _, path := range svc.LabelFiles {
		if err := l.checkServiceFile(path, true); err != nil {
			refuse("label_file", err)
			continue
		}
		paths = append(paths, path)
	}
	var files []types.EnvFile
	for _, f := range svc.EnvFiles {
		if err := l.checkServiceFile(f.Path, bool(f.Required)); err != nil {
			refuse("env_file", err)
			continue
		}
		paths, files = append(paths, f.Path), append(files, f)
	}
	env := maps.Clone(project.Environment)
	for k, v := range svc.Environment {
		if v != nil && len(*v) > len(env[k]) {
			env[k] = *v
		}
	}
	if err := l.measureFiles(paths, env); err != nil {
		refuse("env_file", err)
		return refused
	}
	svc.EnvFiles = files
	if _, err := serviceEnvironment(project, svc); err != nil {
		refuse("env_file", err)
	}
	return refused
}

// checkServiceFile checks a file of variables or labels before it is read.
func (l *loading) checkServiceFile(path string, required bool) error {
	if err := l.checkPlace(path); err != nil {
		return err
	}
	if err := l.gate.File(path, maxFile); err != nil {
		return err
	}
	if _, err := hostpath.Stat(path); required && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist", path)
	}
	return nil
}

// environment collects the variables for interpolation. The caller's come first, then the named variables of this
// process, then the env files.
func (l *loading) environment() error {
	l.env = types.Mapping{}
	for _, k := range l.src.HostEnv {
		if v, ok := os.LookupEnv(k); ok {
			l.env[k] = v
		}
	}
	maps.Copy(l.env, l.src.Env)
	files := slices.Clone(l.src.EnvFiles)
	if len(files) == 0 && l.dir != "" {
		var err error
		if files, err = l.dotEnv(l.dir); err != nil {
			return err
		}
	}
	l.given = maps.Clone(l.env)
	vars, err := l.readVariables(l.env, files)
	if err != nil {
		return err
	}
	l.env = l.env.Merge(vars)
	return nil
}

// dotEnv returns the path of the .env file of a folder, or nil if there is no such file. It fails if the gate rejects
// the file.
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

// readVariables reads files of variables, with a time limit. A value may refer to earlier ones.
func (l *loading) readVariables(env types.Mapping, files []string) (map[string]string, error) {
	if err := l.measureFiles(files, env); err != nil {
		return nil, err
	}
	seen := maps.Clone(env)
	return hostpath.InTime(strings.Join(files, ", "), func() (map[string]string, error) { return dotenv.GetEnvFromFile(seen, files) })
}

// problem gives an error its class and its place in the files, and masks values of this process's variables.
func (l *loading) problem(ctx context.Context, err error) error {
	var typed *fumehood.Error
	switch {
	case ctx.Err() != nil:
		return &fumehood.Error{Op: opLoad, Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	case !errors.As(err, &typed):
		typed = &fumehood.Error{Op: opLoad, Class: fumehood.ErrFile, Err: l.missingImage(err)}
		if typed.Err == nil {
			typed.Err = l.wrongValue(err)
		}
		if typed.Err == nil {
			typed.Err = errors.New(l.places.locate(err.Error()))
		}
	}
	typed.Err = errors.New(l.mask(l.withUnset(typed.Err.Error())))
	return typed
}

func (l *loading) mask(text string) string { return image.Mask(l.src.HostEnv, text) }
