package spec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// Kind is what Discover has found.
type Kind string

// The kinds, in the order in which a folder is searched for them.
const (
	FoundCompose     Kind = "compose"     // a Compose project
	FoundDockerfile  Kind = "dockerfile"  // a Dockerfile
	FoundEnvironment Kind = "environment" // an environment spec, for Load
	FoundNothing     Kind = "nothing"     // the provider's default image is to be taken
)

// Found is what describes the sandbox at a path.
type Found struct {
	Kind Kind
	// Files are a project's files, each over the ones before it, or the one Dockerfile or spec.
	Files []string
}

// The names by which a folder's files are known. Of the projects and of what is laid over them the first that is
// there counts, as for Compose.
var (
	composeNames     = []string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"}
	overrideNames    = []string{"compose.override.yaml", "compose.override.yml", "docker-compose.override.yaml", "docker-compose.override.yml"}
	environmentNames = []string{"environment.yaml", "environment.yml", "env.yaml", "env.yml"}
)

const dockerfileName = "Dockerfile"

// Discover finds what describes a sandbox. In a folder that is a Compose project with what is laid over it, else
// a Dockerfile (or the only NAME.Dockerfile or Dockerfile.NAME), else an environment spec (environment.yaml or
// env.yaml), else nothing. A file is told by its name where that is a Dockerfile's, else by its content: a Compose
// file has services, an environment spec a type. What it finds in a folder lies there, symbolic links resolved, or in
// allowRead: other files and folders. It reads, and makes nothing. Its errors are fumehood.ErrConfig.
func Discover(path string, allowRead ...string) (Found, error) {
	found, err := hostpath.InTime(path, func() (Found, error) { return discover(path, allowRead) })
	if err != nil {
		var known *fumehood.Error
		if errors.As(err, &known) {
			return Found{}, err
		}
		var detail *os.PathError
		if errors.As(err, &detail) {
			err = detail.Err // the path is said already
		}
		return Found{}, &fumehood.Error{Op: "discover", Path: path, Class: fumehood.ErrConfig, Err: err}
	}
	return found, nil
}

func discover(path string, allowRead []string) (Found, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return Found{}, err
	case info.IsDir():
		found, err := inFolder(path)
		if err != nil {
			return Found{}, err
		}
		gate, err := hostpath.NewGate("the folder that was named", path, allowRead...)
		for _, file := range found.Files {
			err = errors.Join(err, gate.Check(file))
		}
		return found, err
	case !info.Mode().IsRegular():
		return Found{}, errors.New("neither a folder nor a regular file")
	case isDockerfile(filepath.Base(path)):
		return Found{FoundDockerfile, []string{path}}, nil
	}
	kind, err := kindOf(path)
	return Found{kind, []string{path}}, err
}

func inFolder(dir string) (Found, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Found{}, err
	}
	var names, dockerfiles []string
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name())) // a link to a file is as good
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		names = append(names, e.Name())
		if isDockerfile(e.Name()) {
			dockerfiles = append(dockerfiles, e.Name())
		}
	}
	first := func(of []string) []string {
		for _, name := range of {
			if slices.Contains(names, name) {
				return []string{filepath.Join(dir, name)}
			}
		}
		return nil
	}
	if files := first(composeNames); files != nil {
		return Found{FoundCompose, append(files, first(overrideNames)...)}, nil
	}
	if files := first([]string{dockerfileName}); files != nil {
		return Found{FoundDockerfile, files}, nil
	}
	switch len(dockerfiles) {
	case 0:
	case 1:
		return Found{FoundDockerfile, []string{filepath.Join(dir, dockerfiles[0])}}, nil
	default:
		return Found{}, &fumehood.Error{
			Op: "discover", Path: dir, Class: fumehood.ErrConfig, Err: fmt.Errorf("several Dockerfiles: %s", strings.Join(dockerfiles, ", ")),
			Hint: "name one of them",
		}
	}
	if files := first(environmentNames); files != nil {
		return Found{FoundEnvironment, files}, nil
	}
	return Found{Kind: FoundNothing}, nil
}

// isDockerfile tells Dockerfile, NAME.Dockerfile and Dockerfile.NAME, but not the lists of what their contexts leave
// out.
func isDockerfile(name string) bool {
	if strings.HasSuffix(name, ".dockerignore") {
		return false
	}
	before, after, found := strings.Cut(name, dockerfileName)
	return found && (before == "" && (after == "" || strings.HasPrefix(after, ".") && after != ".") || after == "" && strings.HasSuffix(before, ".") && before != ".")
}

// maxFile bounds what is read of a file to tell what it is.
const maxFile = 4 << 20

// kindOf tells a file by the keys of its first document.
func kindOf(path string) (Kind, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var doc yaml.Node
	if err := yaml.NewDecoder(io.LimitReader(f, maxFile)).Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("neither a Compose file nor an environment spec, and its name is no Dockerfile's: %w", err)
	}
	var keys []string
	if doc.Kind == yaml.DocumentNode && doc.Content[0].Kind == yaml.MappingNode {
		for i := 0; i < len(doc.Content[0].Content); i += 2 {
			keys = append(keys, doc.Content[0].Content[i].Value)
		}
	}
	switch {
	case slices.Contains(keys, "services"), slices.Contains(keys, "include"):
		return FoundCompose, nil
	case slices.Contains(keys, "type"):
		return FoundEnvironment, nil
	}
	return "", &fumehood.Error{
		Op: "discover", Path: path, Class: fumehood.ErrConfig, Err: errors.New("neither a Compose file nor an environment spec"),
		Hint: "a Compose file has the key services, an environment spec the key type; a Dockerfile is called Dockerfile, NAME.Dockerfile or Dockerfile.NAME",
	}
}
