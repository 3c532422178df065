package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/lazaret/lazaret"
)

// maxSpec is the largest spec in bytes; one that is written by hand has a few thousand.
const maxSpec = 1 << 20

// Load reads the environment spec in a file. Its errors are those of Parse, or a lazaret.ErrConfig where
// the file cannot be read.
func Load(path string) (*Environment, error) {
	text, err := read(path)
	if err != nil {
		var detail *fs.PathError
		if errors.As(err, &detail) {
			err = detail.Err // the path is said already
		}
		return nil, &lazaret.Error{Op: "read spec", Path: path, Class: lazaret.ErrConfig, Err: err}
	}
	return Parse(path, text)
}

// read reads a file, and of one that is too large a byte more than Parse takes.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSpec+1))
}

// Parse reads an environment spec: one YAML document of at most 1 MiB, as environment.schema.json
// describes it. Name stands for the file in errors. The error joins a *Problem for each thing that is
// wrong, in the order of their lines; after the first 20 the others are counted.
func Parse(name string, text []byte) (*Environment, error) {
	d := &decoder{file: name, lines: map[string]int{}}
	e := &Environment{File: name}
	if top := d.document(text); top != nil {
		d.lines[""] = top.Line
		d.value(top, "", reflect.ValueOf(e).Elem(), form{})
		d.check(e)
	}
	if len(d.problems) == 0 {
		return e, nil
	}
	slices.SortStableFunc(d.problems, func(a, b *Problem) int { return a.Line - b.Line })
	errs := make([]error, len(d.problems), len(d.problems)+1)
	for i, p := range d.problems {
		errs[i] = p
	}
	if d.more > 0 {
		errs = append(errs, fmt.Errorf("%s: %d more problems", name, d.more))
	}
	return nil, errors.Join(errs...)
}

var (
	// yamlError is how the YAML library says where a text is no YAML.
	yamlError = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)`)
	// fromZero matches its messages that count lines from 0, and then leave line 0 out.
	fromZero = regexp.MustCompile(`^did not find expected (node content|key|'-' indicator|',' or|<)`)
)

// document returns the value of the one document that text is, or nil after it has noted a problem.
func (d *decoder) document(text []byte) *yaml.Node {
	if len(text) > maxSpec {
		d.problem(0, "", "at most "+FormatSize(maxSpec), "more", "")
		return nil
	}
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&doc)
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			d.problem(second.Line, "", "one document", "another", "")
		}
	} else if errors.Is(err, io.EOF) {
		d.problem(1, "", "an environment spec", nothing, "")
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		line, says := 0, err.Error()
		if m := yamlError.FindStringSubmatch(says); m != nil {
			line, _ = strconv.Atoi(m[1]) // 0 where there is none
			if says = m[2]; fromZero.MatchString(says) {
				line++
			}
		}
		d.problem(line, "", "YAML", "what is none: "+says, "")
		return nil
	}
	top := target(doc.Content[0])
	if isNull(top) {
		d.problem(top.Line, "", "an environment spec", nothing, "")
		return nil
	}
	return top
}

// check notes what is wrong between the values of a spec.
func (d *decoder) check(e *Environment) {
	docker, local := d.lines["docker"], d.lines["local"]
	switch e.Type {
	case TypeDocker:
		if local > 0 {
			d.problem(local, "local", "nothing under type docker", "a value", "")
		}
		build := e.Docker.Build != nil
		if d.lines["docker.image"] == 0 && (!build || d.lines["name"] == 0) {
			hint := ""
			if build {
				hint = "name the environment, and what is built is lazaret:NAME"
			}
			d.problem(or(docker, d.lines[""]), "docker.image", forms["image"].what(), nothing, hint)
		}
	case TypeLocal:
		if docker > 0 {
			d.problem(docker, "docker", "nothing under type local", "a value", "")
		}
	}
}
