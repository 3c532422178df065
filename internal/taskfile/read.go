package taskfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
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
	// maxTask is the maximum size of a task file and of a sample.yaml, in bytes, and that of samples that are read as one
	// document or one line: in memory, these take a hundred times as much.
	maxTask = 16 << 20
	maxData = 256 << 20 // bytes of a file with samples
	maxSpec = 4 << 20   // bytes of a file that defines an environment
	maxFile = 4 << 30   // bytes of a file that is copied into a sandbox
	maxRows = 1_000_000 // samples of a file
)

// ReadOptions define how a task file is read. Outside of tests, the zero value is usually right.
type ReadOptions struct {
	// Env are the variables of this process, in the form of os.Environ, that environment specs with
	// include_os_env pass on. Nil means the actual ones.
	Env []string
	// AllowRead lists files and folders outside the task's folder that the task and its files may read or mount
	// read-only.
	AllowRead []string
	// AllowUnsafe allows, and logs, what breaks the isolation, as in fumehood.Compose, fumehood.Spec and spec.Environment.
	AllowUnsafe bool
	// Logger logs settings of environment specs and data that weaken isolation. Nil disables logging.
	Logger *slog.Logger

	maxAliased int // as in strict.Decoder
	maxRows    int // the maximum number of samples of a file; 0 means maxRows
}

// source is the place that samples were read from.
type source struct {
	file string // name of the file in messages
	dir  string // absolute path that relative paths are resolved against
	data bool   // it is a row of data, possibly from third parties: it may not name files of this machine outside of dir
	gate hostpath.Gate
}

// Open is Read for a task file, or for a folder with a file task.yaml.
func Open(path string, opts ReadOptions) (*File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		gate, err := hostpath.NewGate("the folder that was named", path, opts.AllowRead...)
		path = filepath.Join(path, "task.yaml")
		if err == nil {
			err = gate.Check(path)
		}
		if err != nil {
			return nil, &fumehood.Error{Op: "read task", Path: path, Class: fumehood.ErrFile, Err: err}
		}
	}
	return Read(path, opts)
}

// Read reads a task file and the files that it names: files of samples and environment specs. It also checks that
// Compose files, Dockerfiles, and all files that are copied into sandboxes can be read. All these files must be in the
// task file's folder, with symbolic links resolved, or in opts.AllowRead. Its errors are fumehood.ErrFile; they join
// all problems, with file and line, those of one kind as one. If the task file itself has an unknown key or a value of a
// wrong type, only such problems and those of files are reported.
func Read(path string, opts ReadOptions) (*File, error) {
	text, err := hostpath.ReadFile(path, maxTask)
	if err != nil {
		return nil, readError("read task", path, err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	var gate hostpath.Gate
	if err == nil {
		gate, err = hostpath.NewGate("the task's folder", dir, opts.AllowRead...)
	}
	if err != nil {
		return nil, &fumehood.Error{Op: "read task", Path: path, Class: fumehood.ErrFile, Err: err}
	}
	f := &File{File: path, byID: map[string]*Sample{}}
	f.secrets.Add(path)
	d := &strict.Decoder{File: path, Forms: forms, Types: types, MaxAliased: opts.maxAliased}
	d.Document(text, maxTask, "a task", f)
	bad := []error{d.Err()}
	own := source{file: path, dir: dir, gate: gate}
	for i, s := range f.Samples {
		if s != nil { // else d has a problem
			s.source, s.at = own, at(path, d.Lines[fmt.Sprintf("samples[%d].id", i)])
		}
	}
	for _, name := range f.SamplesFrom {
		f.secrets.Add(inDir(dir, name))
		more, err := samplesOf(gate, inDir(dir, name), at(path, d.Lines["samples_from"]), opts)
		bad = append(bad, err)
		f.Samples = append(f.Samples, more...)
	}
	for _, pattern := range f.SampleFolders {
		more, err := folders(gate, dir, pattern, at(path, d.Lines["sample_folders"]))
		bad = append(bad, err)
		for _, s := range more {
			f.secrets.Add(s.source.file)
		}
		f.Samples = append(f.Samples, more...)
	}
	if d.Err() != nil { // the defaults are incomplete
		bad = append(bad, f.checkFiles(dir, gate, opts, d))
	} else {
		if len(f.Samples) == 0 && errors.Join(bad...) == nil {
			return nil, &fumehood.Error{
				Op: "read task", Path: path, Class: fumehood.ErrFile, Err: errors.New("it has no samples"),
				Hint: "write them below samples, or name their files with samples_from or sample_folders",
			}
		}
		bad = append(bad, f.resolve(dir, gate, opts))
	}
	if err := errors.Join(bad...); err != nil {
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

// inDir returns a path, resolved against dir if it is relative.
func inDir(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}

// readError returns the error of a file that cannot be read.
func readError(op, path string, err error) error {
	var detail *fs.PathError
	if errors.As(err, &detail) {
		err = detail.Err // the path is in the error already
	}
	return &fumehood.Error{Op: op, Path: path, Class: fumehood.ErrFile, Err: err}
}

// samplesOf reads a file of samples, which is named there; its name's extension defines the format. Files that the
// samples name must be in its folder. Samples with problems are left out.
func samplesOf(gate hostpath.Gate, path, there string, opts ReadOptions) ([]*Sample, error) {
	op := there + ": read samples"
	text, err := gate.Read(path, maxData)
	if err != nil {
		return nil, readError(op, path, err)
	}
	from := source{file: path, dir: filepath.Dir(path), data: true}
	if from.gate, err = hostpath.NewGate("the data's folder", from.dir, opts.AllowRead...); err != nil {
		return nil, readError(op, path, err)
	}
	d := &strict.Decoder{File: path, Forms: forms, Types: types}
	var rows iter.Seq[*yaml.Node]
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".yaml", ".yml", ".json":
		if len(text) > maxTask {
			d.Problem(0, "", "at most 16MiB", "more", "a file with one sample in each line, NAME.jsonl, may be larger")
			return nil, d.Err()
		}
		top := d.Top(text, maxTask, "a list of samples")
		rows = slices.Values([]*yaml.Node{})
		switch {
		case top == nil:
		case top.Kind != yaml.SequenceNode:
			d.Wrong(top, "", "a list of samples")
		default:
			rows = slices.Values(top.Content)
		}
	case ".jsonl", ".ndjson":
		rows = rowsOfJSON(d, text)
	case ".csv":
		rows = rowsOfTable(d, text, ',')
	case ".tsv":
		rows = rowsOfTable(d, text, '\t')
	default:
		return nil, &fumehood.Error{
			Op: op, Path: path, Class: fumehood.ErrFile, Err: fmt.Errorf("unsupported sample file type %q", ext),
			Hint: "use NAME.jsonl, NAME.csv, NAME.tsv, NAME.yaml or NAME.json",
		}
	}
	var samples []*Sample
	read := 0
	for n := range rows {
		line := n.Line // for an alias, the line of the alias
		if most := cmp.Or(opts.maxRows, maxRows); read == most {
			d.Problem(line, "", fmt.Sprintf("at most %d samples", most), "more", "use several files")
			break
		}
		read++
		if d.Stop() {
			break
		}
		s := &Sample{source: from, at: at(path, line)}
		if n = strict.Target(n); n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			d.Wrong(n, "", "a sample")
			continue
		}
		before := d.Problems()
		if d.Node(n, s); d.Problems() == before {
			samples = append(samples, s)
		}
	}
	return samples, d.Err()
}

// folders reads the samples of the folders that a pattern matches, sorted by name. The pattern is named there. Samples
// with problems are left out.
func folders(gate hostpath.Gate, dir, pattern, there string) ([]*Sample, error) {
	fail := func(err error, hint string) error {
		return &fumehood.Error{Op: there + ": find sample folders", Path: pattern, Class: fumehood.ErrFile, Err: err, Hint: hint}
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
		if err == nil {
			samples = append(samples, s)
		}
	}
	if len(errs) == 0 {
		return nil, fail(errors.New("no folder matches"), "relative patterns are resolved against the task file's folder")
	}
	return samples, errors.Join(errs...)
}

// root returns the folder at the beginning of a pattern, in which matches are searched.
func root(pattern string) string {
	for strings.ContainsAny(pattern, `*?[`) {
		pattern = filepath.Dir(pattern)
	}
	return pattern
}

// folder reads the sample of a folder. The default id is the folder's name.
func folder(gate hostpath.Gate, dir string) (*Sample, error) {
	path := filepath.Join(dir, "sample.yaml")
	s := &Sample{ID: filepath.Base(dir), source: source{file: path, dir: dir, gate: gate}, at: path}
	text, err := gate.Read(path, maxTask)
	if err != nil {
		return s, readError("read sample", path, err)
	}
	d := &strict.Decoder{File: path, Forms: forms, Types: types}
	if d.Document(text, maxTask, "a sample", s) && d.Lines["id"] == 0 && !forms["id"].Takes(s.ID) {
		d.Problem(0, "id", forms["id"].What(), fmt.Sprintf("%q", strict.Short(s.ID)), "give the sample an id, or its folder another name")
	}
	return s, d.Err()
}

// textNode returns a text as a node of a document.
func textNode(text string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: line}
}
