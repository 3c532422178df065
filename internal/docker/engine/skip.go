package engine

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// skipping is an archive of the Engine without pipes and devices, which it lists as the guest does. The Engine itself leaves
// out sockets.
type skipping struct {
	io.Closer
	source  source
	from    *tar.Reader
	to      *tar.Writer
	buffer  bytes.Buffer // what has been written and not been read
	top     *tar.Header
	skipped archive.Skipped
	err     error // that follows the buffer
}

func newSkipping(content io.ReadCloser) *skipping {
	s := &skipping{Closer: content, source: source{Reader: content}}
	s.from = tar.NewReader(&s.source)
	s.to = tar.NewWriter(&s.buffer)
	return s
}

// source is the Engine's archive. It keeps an error with which that breaks off.
type source struct {
	io.Reader
	err error
}

// Read reads the Engine's archive.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// errChanged is the error of an archive that the Engine ends early, as it does if a file becomes shorter while it is read.
var errChanged error = &fumehood.Error{Class: fumehood.ErrPermission, Err: archive.ErrChanged, Hint: "stop what writes the file, and try again"}

// Read reads the archive.
func (s *skipping) Read(p []byte) (int, error) {
	for s.buffer.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.err = s.advance()
		if errors.Is(s.err, io.ErrUnexpectedEOF) && s.source.err == nil {
			s.err = errChanged
		}
	}
	return s.buffer.Read(p)
}

// advance writes a part of an entry's content or, after that, the next header. It returns io.EOF at the end of the archive.
func (s *skipping) advance() error {
	if s.top != nil {
		const part = 64 << 10
		if n, err := io.CopyN(s.to, s.from, part); n > 0 || !errors.Is(err, io.EOF) {
			return unlessEnd(err)
		}
	}
	head, err := s.from.Next()
	if errors.Is(err, io.EOF) {
		if s.top != nil {
			err = s.skipped.Finish(s.to, s.top)
		}
		return cmp.Or(unlessEnd(err), s.to.Close(), io.EOF)
	}
	if err != nil {
		return err
	}
	if mode := head.FileInfo().Mode(); archive.Special(mode) {
		if s.top == nil {
			return fileError(fumehood.ErrNotRegular)
		}
		s.skipped.Add(strings.TrimPrefix(head.Name, strings.TrimSuffix(s.top.Name, "/")+"/"), archive.Kind(mode))
		return nil
	}
	head.Format = tar.FormatPAX
	if s.top == nil {
		s.top = head
	}
	return s.to.WriteHeader(head)
}

func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
