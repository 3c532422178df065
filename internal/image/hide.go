package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/fumehood/fumehood"
)

// Hidden is the path in a context of the Dockerfile that Hide adds.
const Hidden = ".fumehood.Dockerfile"

// Hide copies a context from r to w and adds a Dockerfile that build steps do not see. The Engine's own builder reads the
// context's ignore list for this: it removes the Dockerfile, and the list itself, if the list names them. A list that is
// visible to build steps gets lines.
func Hide(w io.Writer, r io.Reader, text string) error {
	to, list := tar.NewWriter(w), dockerignore+"\n"
	for from := tar.NewReader(r); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if path.Clean(h.Name) == dockerignore {
			if list, err = readList(h, from); err != nil {
				return err
			}
			continue
		}
		if err := to.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // the writer's error may follow the end of the archive
		return err
	}
	for name, text := range map[string]string{dockerignore: list + Hidden + "\n", Hidden: text} {
		if err := to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := io.WriteString(to, text); err != nil {
			return err
		}
	}
	return to.Close()
}

// readList returns the ignore list of a context, as lines. It is not ignored: else it would not be there.
func readList(h *tar.Header, r io.Reader) (string, error) {
	if h.Typeflag != tar.TypeReg || h.Size > maxSmall {
		return "", &fumehood.Error{
			Op: "build image", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("%s is not a file of at most %d bytes", dockerignore, maxSmall),
			Hint: "use BuildKit, or list it in itself",
		}
	}
	var text strings.Builder
	_, err := io.Copy(&text, r)
	return text.String() + "\n!" + dockerignore + "\n", err
}
