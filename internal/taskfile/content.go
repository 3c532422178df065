package taskfile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/strict"
)

// Files are files of a sandbox by path.
type Files map[string]Content

// Content is the content of a file of a sandbox, of standard input, or of a script. One field is set; none means that
// there is no content. In YAML, Value is a text in place of the mapping.
type Content struct {
	// Text is the content itself.
	Text *string `yaml:"text"`
	// File is the path of a file of this machine.
	File string `yaml:"file" form:"some"`
	// Value is a data URL, the path of a file of this machine, or the text itself. One word with a slash or a file
	// extension is a path, which must exist, except in rows of data.
	Value string `yaml:"-"`

	line int
}

// isSet reports whether there is a content, even an empty one.
func (c Content) isSet() bool { return c.Text != nil || c.File != "" || c.Value != "" }

// readContent reads a content.
func readContent(d *strict.Decoder, n *yaml.Node, path string) any {
	const wanted = "text, {text: TEXT} or {file: PATH}"
	c := Content{line: n.Line}
	if n.Kind != yaml.MappingNode {
		c.Value, _ = d.Text(n, path, wanted)
		return c
	}
	d.Fields(n, path, reflect.ValueOf(&c).Elem())
	if (c.Text != nil) == (c.File != "") {
		d.Problem(n.Line, path, wanted, map[bool]string{true: "both", false: "neither"}[c.Text != nil], "")
	}
	return c
}

// pathLike matches values that are paths, whether or not a file exists: one word with a slash or a file extension.
var pathLike = regexp.MustCompile(`^\S*/\S*$|^\S*\.[A-Za-z][A-Za-z0-9]{0,9}$`)

// content returns the content that a value of a task file stands for. A file of this machine must be one that the
// task may read.
func (from source) content(c Content) (task.Content, error) {
	switch {
	case c.Text != nil:
		return task.Content{Text: *c.Text}, nil
	case c.File != "" && from.data && !filepath.IsLocal(c.File):
		return task.Content{}, fmt.Errorf("%q is outside of the folder of the data that names it", c.File)
	case c.File != "":
		return from.openContent(inDir(from.dir, c.File))
	}
	found := task.ContentOf(c.Value, from.dir)
	switch {
	case found.Path != "" && from.data && !filepath.IsLocal(c.Value):
		return task.Content{Text: c.Value}, nil
	case found.Path != "":
		return from.openContent(found.Path)
	case found.Text == "" || from.data || len(c.Value) > maxPath:
		return found, nil
	}
	info, err := os.Stat(inDir(from.dir, c.Value))
	switch {
	case strings.ContainsAny(c.Value, "\n\x00"), err != nil && !pathLike.MatchString(c.Value):
		return found, nil
	case err != nil:
		err = fmt.Errorf("no such file: %s", c.Value)
	case info.IsDir():
		err = fmt.Errorf("%s is a folder, not a regular file", c.Value)
	default:
		err = fmt.Errorf("%s is not a regular file", c.Value)
	}
	return task.Content{}, &fumehood.Error{Class: fumehood.ErrConfig, Err: err, Hint: "if it is the content itself, write {text: ...}"}
}

// maxPath is the length in bytes of the longest value that is taken for a path.
const maxPath = 4096

// openContent returns a file of this machine as content, if the task may read it and it can be read.
func (from source) openContent(path string) (task.Content, error) {
	if err := from.gate.File(path, maxFile); err != nil {
		return task.Content{}, err
	}
	return task.Content{Path: path}, readable(path)
}

// readable returns an error for a file that cannot be opened.
func readable(path string) error {
	_, err := hostpath.InTime(path, func() (struct{}, error) {
		f, err := archive.OpenRegular(path)
		if err == nil {
			err = f.Close()
		}
		return struct{}{}, err
	})
	return err
}
