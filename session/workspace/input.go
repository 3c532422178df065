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
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Input is a file to write into a workspace. Exactly one of Content, From and Value defines its content.
type Input struct {
	Path    string      // the target path, by the rules of CleanPath
	Content []byte      // the bytes of the file; empty but not nil makes an empty file
	From    string      // path of a file of this machine that is copied unchanged
	Value   any         // a Go value to encode in Format, compressed as the name says
	Format  Format      // of Value; empty means that of the name: "rows.csv", "rows.jsonl.gz"
	Mode    fs.FileMode // permission bits; 0 means 0644
}

// WriteInputs writes input files into the folder dir, which must exist. It creates missing parent folders and
// replaces existing files. Nothing is written outside of dir, even if it contains links that lead out. On an
// error, the files before the one that the error names have been written.
func WriteInputs(ctx context.Context, dir string, inputs []Input) error {
	root, err := openRoot(dir)
	if err != nil {
		return failure("write inputs", dir, fumehood.ErrInfrastructure, err)
	}
	defer root.Close()
	for _, in := range inputs {
		if ctx.Err() != nil {
			return canceledError(ctx)
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
		if err := root.Remove(name); err != nil { // opening it would follow a link, or block on a pipe
			return err
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, in.Mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Chmod(in.Mode), f.Close())
	archive.AwaitForks() // the file may be a program
	return err
}

// content opens the content to write.
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
