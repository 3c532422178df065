package spec

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/strict"
)

// maxSpec is the size limit of a spec in bytes. Specs written by hand have a few thousand.
const maxSpec = 1 << 20

// Load reads the environment spec in a file. Its errors are those of Parse, or a fumehood.ErrFile if the file
// cannot be read.
func Load(path string) (*Environment, error) {
	text, err := readInTime(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

func readInTime(path string) ([]byte, error) {
	text, err := hostpath.InTime(path, func() ([]byte, error) { return readSpec(path) })
	if err != nil {
		var detail *fs.PathError
		if errors.As(err, &detail) {
			err = detail.Err // the path is in the error already
		}
		return nil, &fumehood.Error{Op: "read spec", Path: path, Class: fumehood.ErrFile, Err: err}
	}
	return text, nil
}

// readSpec reads a file. Of a file that is too large, it reads one byte more than Parse accepts.
func readSpec(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSpec+1))
}

// Parse reads an environment spec: one YAML document of at most 1 MiB, as environment.schema.json describes it.
// Name stands for the file in errors. The error joins a *Problem for each problem, ordered by line. After the
// first 20 problems the rest are only counted.
func Parse(name string, text []byte) (*Environment, error) {
	e, _, err := parse(name, text)
	return e, err
}

// parse also returns the lines of the keys that are present and not null, by path.
func parse(name string, text []byte) (e *Environment, lines map[string]int, err error) {
	d := &strict.Decoder{File: name, Forms: forms, Types: types}
	e = &Environment{File: name}
	if d.Document(text, maxSpec, "an environment spec", e) {
		checkEnvironment(d, e)
	}
	if err := d.Err(); err != nil {
		return nil, nil, err
	}
	return e, d.Lines, nil
}

// checkEnvironment records problems that concern more than one value of a spec.
func checkEnvironment(d *strict.Decoder, e *Environment) {
	docker, local := d.Lines["docker"], d.Lines["local"]
	switch e.Type {
	case TypeDocker:
		if local > 0 {
			d.Problem(local, "local", "nothing under type docker", "a value", "")
		}
		build := e.Docker.Build != nil
		if d.Lines["docker.image"] == 0 && (!build || d.Lines["name"] == 0) {
			hint := ""
			if build {
				hint = "name the environment to tag its image fumehood:NAME"
			}
			d.Problem(cmp.Or(docker, d.Lines[""]), "docker.image", forms["image"].What(), strict.Nothing, hint)
		}
	case TypeLocal:
		if docker > 0 {
			d.Problem(docker, "docker", "nothing under type local", "a value", "")
		}
	}
}
