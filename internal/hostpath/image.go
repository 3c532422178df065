package hostpath

import (
	"fmt"
	"path/filepath"
	"strings"
)

// The kinds of images that are files or folders of this machine, which are also the prefixes of their references.
const (
	DockerArchive = "docker-archive"
	OCIArchive    = "oci-archive"
	OCILayout     = "oci" // a folder
)

// OfImage returns the kind, path and tag of an image that is a file or folder, such as oci:FOLDER:TAG. The tag may be empty.
// For other references, all are empty.
func OfImage(ref string) (kind, path, tag string) {
	switch kind, rest, _ := strings.Cut(ref, ":"); kind {
	case DockerArchive, OCIArchive, OCILayout:
		path, tag, _ = strings.Cut(rest, ":")
		return kind, path, tag
	}
	return "", "", ""
}

// Image returns the reference of an image that a file in dir, an absolute path, names. The path of an image that is a file or
// folder is made absolute, and it is an error if the gate rejects it, whether it exists or not. Other references are
// returned unchanged.
func (g Gate) Image(ref, dir string) (string, error) {
	kind, path, tag := OfImage(ref)
	if path == "" {
		return ref, nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	absolute := kind + ":" + path
	if tag != "" {
		absolute += ":" + tag
	}
	if _, same, _ := OfImage(absolute); same != path {
		return "", fmt.Errorf("%s: the path of an image may not have a colon", path)
	}
	return absolute, g.Check(path)
}
