package task

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Content is the content of a file. At most one field is set; if none is, the file is empty.
type Content struct {
	Text string // the content itself
	Path string // a regular file of this machine, or a link to one
	Data string // a data URL (RFC 2397), such as "data:text/plain;base64,aGk="
}

// ContentOf interprets a value of a task file. A value that begins with "data:" is a data URL. Otherwise, if it is
// the path of an existing regular file of this machine, relative to dir, it is that file. Any other value is the
// text itself.
func ContentOf(value, dir string) Content {
	if len(value) >= len(dataPrefix) && strings.EqualFold(value[:len(dataPrefix)], dataPrefix) {
		return Content{Data: value}
	}
	path := value
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if value != "" && !strings.ContainsAny(value, "\n\x00") {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return Content{Path: path}
		}
	}
	return Content{Text: value}
}

const dataPrefix = "data:"

// isZero reports whether no content is set.
func (c Content) isZero() bool { return c == Content{} }

// check finds errors of Open early.
func (c Content) check() error {
	r, _, err := c.Open()
	if err != nil {
		return err
	}
	return r.Close()
}

// Open returns the content as a stream, which the caller must close, and its size in bytes.
func (c Content) Open() (io.ReadCloser, int64, error) {
	given := 0
	for _, s := range []string{c.Text, c.Path, c.Data} {
		if s != "" {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, 0, errors.New("more than one of Text, Path and Data is given")
	case c.Path != "":
		return openFile(c.Path)
	case c.Data != "":
		data, err := decodeDataURL(c.Data)
		return text(data), int64(len(data)), err
	}
	return text(c.Text), int64(len(c.Text)), nil
}

func text(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

func openFile(path string) (io.ReadCloser, int64, error) {
	f, err := archive.OpenRegular(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// decodeDataURL returns the data of a data URL. Its errors do not quote the URL.
func decodeDataURL(s string) (string, error) {
	const subject = "the data URL"
	meta, data, ok := strings.Cut(s, ",")
	if !ok || len(meta) < len(dataPrefix) || !strings.EqualFold(meta[:len(dataPrefix)], dataPrefix) {
		return "", fmt.Errorf(`%s is not of the form data:[TYPE][;base64],DATA`, subject)
	}
	data, err := url.PathUnescape(data)
	if err != nil {
		return "", fmt.Errorf("%s has a %% without two hexadecimal digits", subject)
	}
	const encoded = ";base64"
	if len(meta) < len(encoded) || !strings.EqualFold(meta[len(meta)-len(encoded):], encoded) {
		return data, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(data, "="))
	if err != nil {
		return "", fmt.Errorf("%s is not base64: %w", subject, err)
	}
	return string(b), nil
}
