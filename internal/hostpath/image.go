package hostpath

import "strings"

// The kinds of images that are files or folders of this machine, which are also the prefixes of their references.
const (
	DockerArchive = "docker-archive"
	OCIArchive    = "oci-archive"
	OCILayout     = "oci" // a folder
)

// OfImage returns the kind and the path of an image that is a file or folder, such as oci:FOLDER. The path may end with a colon
// and a tag. For other references, both are empty.
func OfImage(ref string) (kind, path string) {
	switch kind, path, _ := strings.Cut(ref, ":"); kind {
	case DockerArchive, OCIArchive, OCILayout:
		return kind, path
	}
	return "", ""
}
