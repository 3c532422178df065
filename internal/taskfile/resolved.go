package taskfile

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/score"
)

// Resolved returns the task as it is run, as YAML for people. Each sample has all values that apply to it. Files
// of this machine that are copied into sandboxes, or define them, appear by size and SHA-256 sum. The same task
// gives the same text, and any difference in these values gives another text. Files that a Dockerfile copies are
// not included. A file that cannot be read is an ErrConfig.
//
// The text contains no values of variables. Each is replaced by an HMAC-SHA256 of name and value, keyed by the
// user's secret: the file that FUMEHOOD_SECRET_FILE names, else fumehood/secret in the user's state folder. With
// another secret the same task gives another text. A secret that cannot be read or created is an ErrConfig.
func (f *File) Resolved() ([]byte, error) {
	text := bytes.NewBufferString("# The task as it is run, with what its files held then.\n")
	r := renderer{scalars: map[any]*yaml.Node{}}
	// Piece by piece: as one document, 10,000 samples take a hundred times as much memory as their text.
	add := func(piece any) error {
		node := r.nodeOf(reflect.ValueOf(piece))
		if r.err != nil {
			return r.err
		}
		data, err := yaml.Marshal(node)
		if err != nil {
			return &fumehood.Error{Op: "resolve task " + f.Name, Class: fumehood.ErrInfrastructure, Err: err}
		}
		text.Write(data)
		return nil
	}
	if err := add(resolved{f.Name, f.Epochs, limit(f.AttemptTimeout), f.SetupTimeout}); err != nil {
		return nil, err
	}
	text.WriteString("samples:\n")
	sums := map[string]*sum{}
	for _, s := range f.Samples {
		sample, err := s.toResolved(sums)
		if err != nil {
			return nil, &fumehood.Error{Op: fmt.Sprintf("resolve sample %q", s.ID), Class: fumehood.ErrConfig, Err: err}
		}
		if err := add([]resolvedSample{sample}); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// resolved holds the values before the samples.
type resolved struct {
	Name           string
	Epochs         int
	AttemptTimeout time.Duration `yaml:"attempt_timeout"`
	SetupTimeout   time.Duration `yaml:"setup_timeout"`
}

type resolvedSample struct {
	ID       string
	Metadata map[string]string
	Sandbox  fumehood.Spec
	Files    map[string]*given
	Setup    *given
	Steps    []resolvedStep
	Expect   *score.Expect
	Grader   *score.Grader
	Of       []sum // the files that define its sandbox, and those that only the grader sees
	// Env are the contents of the variable files that its Compose project reads, by path.
	Env map[string]string `yaml:"env_files"`
}

type resolvedStep struct {
	Step  `yaml:",inline"`
	Stdin *given
	Wall  time.Duration `yaml:"timeout"`
	CPU   time.Duration `yaml:"cpu_time"`
}

// given is a content: a text, or a file of this machine.
type given struct {
	Text string
	File *sum
}

// sum describes the content of a file of this machine.
type sum struct {
	Path   string
	Size   int64
	SHA256 string
	text   []byte // content of a file of variables, which has no sum
}

func (s *Sample) toResolved(sums map[string]*sum) (r resolvedSample, err error) {
	r = resolvedSample{ID: s.ID, Metadata: s.content.Metadata, Sandbox: s.spec, Expect: s.Expect, Grader: s.grader, Files: map[string]*given{}}
	for key, content := range s.content.Files {
		if r.Files[key], err = givenContent(content, sums); err != nil {
			return r, err
		}
	}
	if r.Setup, err = givenContent(s.content.Setup, sums); err != nil {
		return r, err
	}
	for _, st := range s.steps {
		step := resolvedStep{Step: st.Step, Wall: st.wall, CPU: st.cpu}
		step.Timeout, step.CPUTime = 0, 0 // reported in the fields of resolvedStep
		if step.Stdin, err = givenContent(st.stdin, sums); err != nil {
			return r, err
		}
		r.Steps = append(r.Steps, step)
	}
	var files []string
	if c := s.spec.Compose; c != nil {
		files = append(files, c.Files...)
		if c.Dockerfile != "" {
			files = append(files, c.Dockerfile)
		} else if r.Env, err = envFiles(filepath.Join(filepath.Dir(c.Files[0]), ".env"), sums); err != nil {
			return r, err
		}
	}
	if s.grader != nil {
		for _, m := range s.grader.Hidden {
			below, err := filesBelow(m.Host)
			if err != nil {
				return r, err
			}
			files = append(files, below...)
		}
	}
	for _, file := range files {
		content, err := sumOf(file, sums)
		if err != nil {
			return r, err
		}
		r.Of = append(r.Of, *content)
	}
	return r, nil
}

// envFiles returns the content of a file of variables by its path, or nil if the file does not exist.
func envFiles(path string, sums map[string]*sum) (map[string]string, error) {
	known := sums[path+"\x00"] // no file path ends like that
	if known == nil {
		text, err := hostpath.ReadFile(path, maxSpec)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		known = &sum{text: text}
		sums[path+"\x00"] = known
	}
	if known.text == nil {
		return nil, nil
	}
	return map[string]string{path: string(known.text)}, nil
}

// filesBelow returns the regular files below a folder, or the file itself.
func filesBelow(path string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

func givenContent(c task.Content, sums map[string]*sum) (*given, error) {
	switch {
	case c == task.Content{}:
		return nil, nil
	case c.Path != "":
		file, err := sumOf(c.Path, sums)
		return &given{File: file}, err
	case c.Data != "":
		return &given{Text: c.Data}, nil
	}
	return &given{Text: c.Text}, nil
}

// sumOf returns the sum of a file, which is read once.
func sumOf(path string, sums map[string]*sum) (*sum, error) {
	if known := sums[path]; known != nil {
		return known, nil
	}
	f, err := archive.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, io.LimitReader(f, maxFile+1))
	if err == nil && size > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, int64(maxFile))
	}
	if err != nil {
		return nil, err
	}
	s := &sum{Path: path, Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}
	sums[path] = s
	return s, nil
}

// renderer converts values to YAML without the values of variables.
type renderer struct {
	key []byte // key of the HMACs; nil before the first use
	err error  // error that prevented the key or the text

	scalars map[any]*yaml.Node // by value, at most maxScalars
}

// hideValue returns the replacement for the value of a variable. Without the secret, even short values cannot be
// guessed from it.
func (r *renderer) hideValue(name, value string) string {
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		_, _ = io.WriteString(h, text) // never fails
		return h.Sum(nil)
	}
	if r.key == nil && r.err == nil {
		var secret []byte
		if secret, r.err = owner.Secret(); r.err == nil {
			r.key = mac(secret, "fumehood: variables of resolved tasks") // the secret itself seals labels
		}
	}
	if r.err != nil {
		return ""
	}
	return "hmac-sha256:" + hex.EncodeToString(mac(r.key, name+"\x00"+value)) // names contain no NUL
}

// variables returns the variables with their values replaced.
func (r *renderer) variables(env map[string]string) map[string]string {
	hidden := map[string]string{}
	for name, value := range env {
		hidden[name] = r.hideValue(name, value)
	}
	return hidden
}

// nodeOf returns a value as YAML without its zero values. A pointer that is not nil is always included.
func (r *renderer) nodeOf(v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case time.Duration:
		return r.scalarOf(x.String())
	case json.RawMessage:
		return r.scalarOf(string(x))
	}
	switch v.Kind() {
	case reflect.Pointer:
		return r.nodeOf(v.Elem())
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		r.addFields(n, v)
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if value := v.MapIndex(key); value.Kind() == reflect.Pointer && value.IsNil() {
				n.Content = append(n.Content, r.scalarOf(key.String()), r.scalarOf(nil))
			} else {
				n.Content = append(n.Content, r.scalarOf(key.String()), r.nodeOf(value))
			}
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, r.nodeOf(v.Index(i)))
		}
		return n
	}
	return r.scalarOf(v.Interface())
}

// addFields adds the fields of a struct, with their names in YAML or else in Go. A field Env holds variables.
func (r *renderer) addFields(n *yaml.Node, v reflect.Value) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, rest, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !field.IsExported() || value.IsZero():
		case rest == "inline":
			r.addFields(n, value)
		case value.Kind() == reflect.Interface || value.Kind() == reflect.Func: // not from a file
		default:
			if name == "" {
				name = strings.ToLower(field.Name)
			}
			if env, ok := value.Interface().(map[string]string); ok && field.Name == "Env" {
				value = reflect.ValueOf(r.variables(env))
			}
			n.Content = append(n.Content, r.scalarOf(name), r.nodeOf(value))
		}
	}
}

// scalarOf returns the node of a scalar. Nodes are cached: encoding one takes 50 KB, and most have one of a few
// names and values.
func (r *renderer) scalarOf(v any) *yaml.Node {
	n := r.scalars[v]
	if n == nil {
		n = &yaml.Node{}
		if err := n.Encode(v); err != nil && r.err == nil {
			r.err = err
		}
		if len(r.scalars) < maxScalars {
			r.scalars[v] = n
		}
	}
	return n
}

// maxScalars bounds the nodes that a renderer keeps.
const maxScalars = 1000
