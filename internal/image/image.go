package image

import (
	"errors"
	"time"

	"github.com/containerd/platforms"
	"github.com/distribution/reference"

	"github.com/fumehood/fumehood"
)

// Image is an image that a store has.
type Image struct {
	Ref        string // the name that starts it
	ID         string
	Pinned     string // the name by which its registry has the same image whatever tags move; empty if not known
	OS, Arch   string // as in GOOS and GOARCH: "linux", "arm64"
	User       string
	WorkingDir string
	Entrypoint []string // the program; Command is appended
	Command    []string
	OnBuild    []string          // instructions that images built on it run first, as lines of a Dockerfile
	Labels     map[string]string // of Fumehood's labels only those that the seal proves
	Tags       []string          // sorted, in short form
	Created    time.Time
	Tagged     time.Time // when it last got a name, by a pull or build; zero if not reported
	Size       int64     // bytes, including layers shared with other images
}

// isFor reports whether the image is for a platform; "" matches any image.
func (i Image) isFor(platform string) bool {
	if platform == "" {
		return true
	}
	arch, err := platformArch(platform)
	return err == nil && i.Arch == arch
}

// ErrBusy matches the error of a pull or build that failed because a registry is overloaded or broken. A later retry
// may succeed.
var ErrBusy = errors.New("the registry is busy or broken")

// Tag returns an image's name in the short form in which the Engine lists it. A name that cannot be a tag is an
// ErrConfig.
func Tag(name string) (string, error) {
	ref, err := reference.ParseNormalizedNamed(name)
	if err == nil && !reference.IsNameOnly(ref) {
		if _, tagged := ref.(reference.Tagged); !tagged {
			err = errors.New("it names an image by its digest")
		}
	}
	if err != nil {
		return "", &fumehood.Error{Op: "tag image " + name, Class: fumehood.ErrConfig, Err: err}
	}
	return reference.FamiliarString(reference.TagNameOnly(ref)), nil
}

// Familiar returns a reference as Tag does. It returns ref unchanged if it is not a valid reference.
func Familiar(ref string) string {
	if tag, err := Tag(ref); err == nil {
		return tag
	}
	return ref
}

// platformArch returns the architecture of a platform such as "linux/arm64/v8", in the Engine's notation.
func platformArch(platform string) (string, error) {
	p, err := platforms.Parse(platform)
	if err != nil {
		return "", &fumehood.Error{Op: "platform " + platform, Class: fumehood.ErrConfig, Err: err}
	}
	return p.Architecture, nil
}
