package workspace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fumehood/fumehood"
)

// Input is a file that a workspace is given. Exactly one of Content, From and Value says what is in it.
type Input struct {
	Path    string      // where it goes, by the rules of CleanPath
	Content []byte      // its bytes, as they are; empty but not nil makes an empty file
	From    string      // a file of this machine, whose bytes it gets as they are
	Value   any         // a Go value that is written in the format, and compressed as the name says
	Format  Format      // of Value; empty tells it by the name: "rows.csv", "rows.jsonl.gz"
	Mode    fs.FileMode // permission bits; 0 is 0644
}

// WriteInputs writes input files into the folder dir, which must exist, with the folders above them, and
// replaces files that are there. Nothing is written outside of it, whatever links are in it. At an error the
// files before the one that the error names are there.
func WriteInputs(ctx context.Context, dir string, inputs []Input) error {
	root, err := openRoot(dir)
	if err != nil {
		return failure("write inputs", dir, fumehood.ErrInfrastructure, err)
	}
	defer root.Close()
	for _, in := range inputs {
		if ctx.Err() != nil {
			return cancelled(ctx)
		}
		if err := in.write(root); err != nil {
			return failure("write input", in.Path, fumehood.ErrInfrastructure, cause(err))
		}
	}
	return nil
}

func (in Input) write(root *os.Root) error {
	name, err := cleanPath(in.Path)
	if err != nil {
		return err
	}
	if in.Mode == 0 {
		in.Mode = 0o644
	}
	if in.Mode.Perm() != in.Mode {
		return wrong("mode %v has more than permission bits", in.Mode)
	}
	content, err := in.content(name)
	if err != nil {
		return err
	}
	defer content.Close()
	name = filepath.FromSlash(name)
	switch err := root.MkdirAll(filepath.Dir(name), 0o755); {
	case errors.Is(err, fs.ErrExist):
		return &fumehood.Error{Class: fumehood.ErrNotDirectory}
	case err != nil:
		return err
	}
	switch info, err := root.Lstat(name); {
	case err == nil && info.IsDir():
		return &fumehood.Error{Class: fumehood.ErrIsDirectory}
	case err == nil:
		if err := root.Remove(name); err != nil { // a link would be followed, a pipe waited for
			return err
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, in.Mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(in.Mode), f.Close())
}

// content opens what is to be written.
func (in Input) content(name string) (io.ReadCloser, error) {
	given := 0
	for _, is := range []bool{in.Content != nil, in.From != "", in.Value != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, wrong("exactly one of Content, From and Value must be given, not %d", given)
	case in.Content != nil:
		return io.NopCloser(bytes.NewReader(in.Content)), nil
	case in.From != "":
		root, err := openRoot(filepath.Dir(in.From))
		if err != nil {
			return nil, err
		}
		defer root.Close()
		f, _, err := openRegular(root, filepath.Base(in.From))
		if err != nil {
			return nil, failure("read", in.From, fumehood.ErrInfrastructure, cause(err))
		}
		return f, nil
	}
	format, c := formatOf(name)
	if in.Format != "" {
		format = in.Format
	}
	data, err := marshal(format, in.Value)
	if err != nil {
		return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	var b bytes.Buffer
	w, err := compress(&b, c)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	return io.NopCloser(&b), errors.Join(err, w.Close())
}
