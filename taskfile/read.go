package taskfile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/strict"
)

const (
	maxTask = 16 << 20  // bytes of a task file, and of a sample.yaml
	maxData = 256 << 20 // bytes of a file that holds samples
	maxSpec = 4 << 20   // bytes of a file that describes an environment
	maxFile = 4 << 30   // bytes of a file that is put into a sandbox
)

// ReadOptions say how a task file is read. The zero value is right for all but tests.
type ReadOptions struct {
	// Env are the variables of this process that environment specs with include_os_env pass on, as by os.Environ. Nil
	// means those that there are.
	Env []string
	// AllowRead are files and folders outside the task's folder that the task and what it names may read, or have mounted
	// read-only.
	AllowRead []string
	// AllowUnsafe allows, and logs, what breaks the isolation, as in fumehood.Compose, fumehood.Spec and spec.Environment.
	AllowUnsafe bool
	// Logger logs what environment specs loosen. Nil logs nothing.
	Logger *slog.Logger

	maxAliased int // as in strict.Decoder
}

// source says where samples were read.
type source struct {
	file string // for messages
	dir  string // an absolute path, at which relative paths start
	data bool   // it is a row of data, that may be others': it names no file of this machine outside of dir
	gate hostpath.Gate
}

// Read reads a task file, and what it names: files of samples, environment specs, and whether there are the Compose
// files and Dockerfiles. What it names lies below the file's folder, symbolic links resolved, or opts.AllowRead. Its errors are fumehood.ErrConfig; they join a problem for each thing that is wrong, with file
// and line.
func Read(path string, opts ReadOptions) (*File, error) {
	text, err := hostpath.ReadFile(path, maxTask)
	if err != nil {
		return nil, readError(path, err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	var gate hostpath.Gate
	if err == nil {
		gate, err = hostpath.NewGate("the task's folder", dir, opts.AllowRead...)
	}
	if err != nil {
		return nil, &fumehood.Error{Op: "read task", Path: path, Class: fumehood.ErrConfig, Err: err}
	}
	f := &File{File: path, byID: map[string]*Sample{}}
	f.secrets.Add(path)
	d := &strict.Decoder{File: path, Forms: forms, Types: types, MaxAliased: opts.maxAliased}
	d.Document(text, maxTask, "a task", f)
	if err := d.Err(); err != nil {
		return nil, err
	}
	own := source{file: path, dir: dir, gate: gate}
	for i, s := range f.Samples {
		s.source, s.at = own, at(path, d.Lines[fmt.Sprintf("samples[%d].id", i)])
	}
	var errs []error
	for _, name := range f.SamplesFrom {
		f.secrets.Add(inDir(dir, name))
		more, err := samplesOf(gate, inDir(dir, name), opts)
		errs = append(errs, err)
		f.Samples = append(f.Samples, more...)
	}
	for _, pattern := range f.SampleFolders {
		more, err := folders(gate, dir, pattern)
		errs = append(errs, err)
		for _, s := range more {
			f.secrets.Add(s.source.file)
		}
		f.Samples = append(f.Samples, more...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(f.Samples) == 0 {
		return nil, &fumehood.Error{
			Op: "read task", Path: path, Class: fumehood.ErrConfig, Err: errors.New("it has no samples"),
			Hint: "write some below samples, or name where they are by samples_from or sample_folders",
		}
	}
	if err := f.resolve(dir, gate, opts); err != nil {
		return nil, err
	}
	return f, nil
}

func at(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// inDir is a path that starts at dir if it is relative.
func inDir(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}

// readError is about a file that cannot be read.
func readError(path string, err error) error {
	var detail *fs.PathError
	if errors.As(err, &detail) {
		err = detail.Err // the path is said already
	}
	return &fumehood.Error{Op: "read task", Path: path, Class: fumehood.ErrConfig, Err: err}
}

// samplesOf reads a file of samples, by its name's end. What they name lies in its folder.
func samplesOf(gate hostpath.Gate, path string, opts ReadOptions) ([]*Sample, error) {
	text, err := gate.Read(path, maxData)
	if err != nil {
		return nil, readError(path, err)
	}
	from := source{file: path, dir: filepath.Dir(path), data: true}
	if from.gate, err = hostpath.NewGate("the data's folder", from.dir, opts.AllowRead...); err != nil {
		return nil, readError(path, err)
	}
	d := &strict.Decoder{File: path, Forms: forms, Types: types}
	var nodes []*yaml.Node
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".yaml", ".yml", ".json":
		top := d.Top(text, maxData, "a list of samples")
		switch {
		case top == nil:
		case top.Kind != yaml.SequenceNode:
			d.Wrong(top, "", "a list of samples")
		default:
			nodes = top.Content
		}
	case ".jsonl", ".ndjson":
		nodes = rowsOfJSON(d, text)
	case ".csv":
		nodes = rowsOfTable(d, text, ',')
	case ".tsv":
		nodes = rowsOfTable(d, text, '\t')
	default:
		return nil, &fumehood.Error{
			Op: "read samples", Path: path, Class: fumehood.ErrConfig, Err: fmt.Errorf("%q is no kind of file that has samples", ext),
			Hint: "it is NAME.jsonl, NAME.csv, NAME.tsv, NAME.yaml or NAME.json",
		}
	}
	var samples []*Sample
	for _, n := range nodes {
		line := n.Line // an alias's own
		s := &Sample{source: from, at: at(path, line)}
		if n = strict.Target(n); n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			d.Wrong(n, "", "a sample")
			continue
		}
		d.Node(n, s)
		samples = append(samples, s)
	}
	return samples, d.Err()
}

// folders reads the samples of the folders that a pattern matches, in the order of their names.
func folders(gate hostpath.Gate, dir, pattern string) ([]*Sample, error) {
	fail := func(err error, hint string) error {
		return &fumehood.Error{Op: "find sample folders", Path: pattern, Class: fumehood.ErrConfig, Err: err, Hint: hint}
	}
	if err := gate.Check(root(inDir(dir, pattern))); err != nil {
		return nil, fail(err, "")
	}
	matches, err := filepath.Glob(inDir(dir, pattern))
	if err != nil {
		return nil, fail(err, "")
	}
	slices.Sort(matches)
	var samples []*Sample
	var errs []error
	for _, m := range matches {
		if info, err := os.Stat(m); err != nil || !info.IsDir() {
			continue
		}
		s, err := folder(gate, m)
		errs = append(errs, err)
		samples = append(samples, s)
	}
	if len(samples) == 0 {
		return nil, fail(errors.New("no folder matches"), "relative patterns start at the task file's folder")
	}
	return samples, errors.Join(errs...)
}

// root returns the folder that a pattern begins with, in which its matches are looked for.
func root(pattern string) string {
	for strings.ContainsAny(pattern, `*?[`) {
		pattern = filepath.Dir(pattern)
	}
	return pattern
}

// folder reads the sample of a folder, whose name is the sample's id if that says none.
func folder(gate hostpath.Gate, dir string) (*Sample, error) {
	path := filepath.Join(dir, "sample.yaml")
	s := &Sample{ID: filepath.Base(dir), source: source{file: path, dir: dir, gate: gate}, at: path}
	text, err := gate.Read(path, maxTask)
	if err != nil {
		return s, readError(path, err)
	}
	d := &strict.Decoder{File: path, Forms: forms, Types: types}
	if d.Document(text, maxTask, "a sample", s) && d.Lines["id"] == 0 && !forms["id"].Takes(s.ID) {
		d.Problem(0, "id", forms["id"].What(), fmt.Sprintf("%q", strict.Short(s.ID)), "give the sample an id, or its folder another name")
	}
	return s, d.Err()
}

// textNode is a text as a document has it.
func textNode(text string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: line}
}
