package compose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/consts"
	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/lazaret/lazaret"
)

// maxFile bounds what is read of one Compose file.
const maxFile = 4 << 20

// Load reads a project as Compose does, for a sandbox of the given name. Of this process's environment
// it sees the variables that src names, and nothing else. Its errors are ErrConfig.
func Load(ctx context.Context, name string, src lazaret.Compose) (*Project, error) {
	l := &loading{name: name, src: src}
	p, err := l.load(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, &lazaret.Error{Op: opLoad, Class: lazaret.ErrCancelled, Err: context.Cause(ctx)}
		}
		return nil, l.places.problem(err)
	}
	return p, nil
}

const opLoad = "load compose project"

// loading is one Load under way.
type loading struct {
	name string
	src  lazaret.Compose

	files  []types.ConfigFile
	dir    string
	env    types.Mapping
	places places
}

func (l *loading) load(ctx context.Context) (*Project, error) {
	quiet()
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
	project, err := loader.LoadWithContext(ctx,
		types.ConfigDetails{WorkingDir: l.dir, ConfigFiles: l.files, Environment: maps.Clone(l.env)},
		loader.WithProfiles(profiles), loader.WithoutUnnecessaryResources, loader.WithDiscardEnvFiles,
		func(o *loader.Options) { o.SetProjectName(l.name, true) },
	)
	if err != nil {
		return nil, err
	}
	p := &Project{project: project, places: &l.places}
	return p, p.settle(l.src.Service)
}

// read reads the files and finds the project's folder.
func (l *loading) read() error {
	if len(l.src.Files) == 0 {
		return errors.New("no compose file is given")
	}
	for _, name := range l.src.Files {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		content, err := readFile(path)
		if err != nil {
			return err
		}
		l.files = append(l.files, types.ConfigFile{Filename: path, Content: content})
		if err := l.places.add(path, content); err != nil {
			return err
		}
	}
	dir := l.src.Dir
	if dir == "" {
		dir = filepath.Dir(l.files[0].Filename)
	}
	var err error
	l.dir, err = filepath.Abs(dir)
	return err
}

// readFile reads a regular file that is not larger than maxFile.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return content, err
}

// environment gathers what interpolation sees: the named variables of this process, then the env files,
// and above all what the caller gives.
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
		file := filepath.Join(l.dir, ".env")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil
	}
	vars, err := dotenv.GetEnvFromFile(l.env, files)
	if err != nil {
		return err
	}
	l.env = l.env.Merge(vars)
	return nil
}

// settle decides what does not depend on a policy.
func (p *Project) settle(wanted string) error {
	for _, m := range []func(){
		func() {
			if p.project.Networks == nil {
				p.project.Networks = types.Networks{}
			}
			if p.project.Volumes == nil {
				p.project.Volumes = types.Volumes{}
			}
			if p.project.Configs == nil {
				p.project.Configs = types.Configs{}
			}
			if p.project.Secrets == nil {
				p.project.Secrets = types.Secrets{}
			}
		},
	} {
		m()
	}
	p.order = p.places.order(p.project.Services)
	var err error
	if p.settings, err = parseSettings(p); err != nil {
		return err
	}
	p.service, err = p.defaultService(wanted)
	return err
}

// defaultService is the service that commands go to where none is named.
func (p *Project) defaultService(wanted string) (string, error) {
	if len(p.order) == 0 {
		return "", errors.New("no service is active")
	}
	if wanted != "" {
		if _, ok := p.project.Services[wanted]; !ok {
			return "", fmt.Errorf("there is no service %q; there are: %s", wanted, strings.Join(p.order, ", "))
		}
		return wanted, nil
	}
	if _, ok := p.project.Services[DefaultService]; ok {
		return DefaultService, nil
	}
	var marked []string
	for _, name := range p.order {
		isDefault, err := p.flag(name, "x-default")
		if err != nil {
			return "", err
		}
		if isDefault {
			marked = append(marked, name)
		}
	}
	switch len(marked) {
	case 0:
		return p.order[0], nil
	case 1:
		return marked[0], nil
	}
	return "", p.bad(marked[1], "x-default", "service %s says so too", marked[0])
}

// flag is a service's extension that is true or false.
func (p *Project) flag(service, key string) (bool, error) {
	v, ok := p.project.Services[service].Extensions[key]
	if !ok {
		return false, nil
	}
	b, ok := v.(bool)
	if !ok {
		return false, p.bad(service, key, "wanted true or false")
	}
	return b, nil
}
