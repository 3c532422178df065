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
	"github.com/fumehood/fumehood/internal/strict"
)

// Kind is the kind of file that Discover has found.
type Kind string

// The kinds, in the order in which a folder is searched for them.
const (
	FoundCompose     Kind = "compose"     // a Compose project
	FoundDockerfile  Kind = "dockerfile"  // a Dockerfile
	FoundEnvironment Kind = "environment" // an environment spec, for Load
	FoundNothing     Kind = "nothing"     // for callers without a path: the provider's default image; Discover never returns it
)

// Found is the description of a sandbox at a path.
type Found struct {
	Kind Kind
	// Files are the files of a Compose project, each overriding the ones before it, or the one Dockerfile or
	// spec.
	Files []string
}

// The file names that are searched in a folder. Of the Compose files and of the overrides, the first existing
// name is used, as in Compose.
var (
	composeNames     = []string{"compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"}
	overrideNames    = []string{"compose.override.yaml", "compose.override.yml", "docker-compose.override.yaml", "docker-compose.override.yml"}
	environmentNames = []string{"environment.yaml", "environment.yml", "env.yaml", "env.yml"}
)

const dockerfileName = "Dockerfile"

// Discover finds the file that describes a sandbox. In a folder, that is a Compose project with its override;
// else a Dockerfile (or the only NAME.Dockerfile or Dockerfile.NAME); else an environment spec (environment.yaml
// or env.yaml). A folder without any of them is an error. A file is a Dockerfile if it has such a name. Otherwise its
// content decides: a Compose file has services, an environment spec a type. An empty path is an error; "." is the current
// folder.
//
// Files found in a folder must be in that folder, with symbolic links resolved, or in allowRead, which lists
// other files and folders. Discover only reads. Its errors are fumehood.ErrFile.
func Discover(path string, allowRead ...string) (Found, error) {
	if path == "" {
		return Found{}, &fumehood.Error{
			Op: "discover", Class: fumehood.ErrFile, Err: errors.New("the path is empty"), Hint: `name a file or folder; "." is the current one`,
		}
	}
	found, err := hostpath.InTime(path, func() (Found, error) { return discover(path, allowRead) })
	if err != nil {
		var known *fumehood.Error
		if errors.As(err, &known) {
			return Found{}, err
		}
		var detail *os.PathError
		if errors.As(err, &detail) {
			err = detail.Err // the path is in the error already
		}
		return Found{}, &fumehood.Error{Op: "discover", Path: path, Class: fumehood.ErrFile, Err: err}
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
		info, err := os.Stat(filepath.Join(dir, e.Name())) // a link to a file counts as a file
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		names = append(names, e.Name())
		if isDockerfile(e.Name()) {
			dockerfiles = append(dockerfiles, e.Name())
		}
	}
	first := func(paths []string) []string {
		for _, name := range paths {
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
			Op: "discover", Path: dir, Class: fumehood.ErrFile, Err: fmt.Errorf("several Dockerfiles: %s", strings.Join(dockerfiles, ", ")),
			Hint: "name one of them",
		}
	}
	if files := first(environmentNames); files != nil {
		return Found{FoundEnvironment, files}, nil
	}
	return Found{}, &fumehood.Error{
		Op: "discover", Path: dir, Class: fumehood.ErrConfig, Err: errors.New("no Compose file, Dockerfile or environment spec in this folder"),
		Hint: "looked for " + strings.Join(slices.Concat(composeNames, []string{dockerfileName, "NAME." + dockerfileName, dockerfileName + ".NAME"}, environmentNames), ", "),
	}
}

// isDockerfile reports whether a name is Dockerfile, NAME.Dockerfile or Dockerfile.NAME. A .dockerignore is not a
// Dockerfile.
func isDockerfile(name string) bool {
	if strings.HasSuffix(name, ".dockerignore") {
		return false
	}
	before, after, found := strings.Cut(name, dockerfileName)
	return found && (before == "" && (after == "" || strings.HasPrefix(after, ".") && after != ".") || after == "" && strings.HasSuffix(before, ".") && before != ".")
}

// maxFile is the number of bytes that are read to detect the kind of a file.
const maxFile = 4 << 20

// kindOf returns the kind of a file, from the keys of its first document.
func kindOf(path string) (Kind, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var doc yaml.Node
	if err := yaml.NewDecoder(io.LimitReader(f, maxFile)).Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("neither a Compose file nor an environment spec, and not named as a Dockerfile: %w", err)
	}
	var keys []string
	if doc.Kind == yaml.DocumentNode {
		for _, mapping := range strict.Mappings(doc.Content[0]) {
			for i := 0; i < len(mapping.Content); i += 2 {
				keys = append(keys, mapping.Content[i].Value)
			}
		}
	}
	switch {
	case slices.Contains(keys, "services"), slices.Contains(keys, "include"):
		return FoundCompose, nil
	case slices.Contains(keys, "type"):
		return FoundEnvironment, nil
	}
	return "", &fumehood.Error{
		Op: "discover", Path: path, Class: fumehood.ErrFile, Err: errors.New("neither a Compose file nor an environment spec"),
		Hint: "a Compose file has the key services, an environment spec the key type; a Dockerfile is called Dockerfile, NAME.Dockerfile or Dockerfile.NAME",
	}
}
