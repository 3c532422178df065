package provider

import (
	"context"
	"io"
	"time"

	"github.com/fumehood/fumehood"
)

// ImageBuilder is an optional interface of a Provider that builds images and manages those it built.
type ImageBuilder interface {
	// FindImage describes a local image; false if no local image has that name. It contacts no registry.
	FindImage(ctx context.Context, ref string) (Image, bool, error)
	// PullImage describes an image, and pulls it first if no local image has that name.
	PullImage(ctx context.Context, ref string) (Image, error)
	// BuildImage builds an image and returns its ID. A failed step is an ErrConfig that names the step and quotes
	// the end of its output. When ctx ends, the build ends too, and none of its tags has moved.
	BuildImage(ctx context.Context, b ImageBuild) (id string, err error)
	// Images lists the images that BuildImage made, newest first.
	Images(ctx context.Context) ([]Image, error)
	// RemoveImage removes an image listed by Images: its tags, and the image itself if it has no other name. An
	// image used by a container stays and is an ErrUnavailable.
	RemoveImage(ctx context.Context, image Image) error
}

// ImageFinder is an optional interface of a Provider with images of its own.
type ImageFinder interface {
	// HasImage reports whether a sandbox with the image could start now without fetching anything. It contacts no registry
	// and no Engine.
	HasImage(ctx context.Context, ref string) (bool, error)
}

// ImagePlanner is an optional interface of a Provider that lists the images of sandboxes before they start.
type ImagePlanner interface {
	// NeededImages returns the images that a sandbox of the spec needs, each after those that it is built on. It reads the
	// files that the spec names, and asks no registry. Errors in those files are an ErrConfig or ErrFile.
	NeededImages(ctx context.Context, spec fumehood.Spec) ([]NeededImage, error)
	// HasNeeded reports whether a sandbox could start now without fetching the image. It asks no registry. An image that the
	// provider cannot use, such as a NeededBuild of one that builds nothing, is an ErrUnsupported.
	HasNeeded(ctx context.Context, image NeededImage) (bool, error)
	// ImageStorage describes where the images are stored.
	ImageStorage(ctx context.Context) (ImageStorage, error)
}

// ImageFetcher is an optional interface of a Provider that gets images before sandboxes need them.
type ImageFetcher interface {
	ImagePlanner
	// FetchImage makes the provider have an image, as the start of a sandbox would. It does nothing if the image is there.
	// It may be called concurrently, and fetches one image once. An image that is not fetched, such as a NeededBuild, is an
	// ErrConfig.
	FetchImage(ctx context.Context, image NeededImage) error
}

// NeededImage is an image that a sandbox needs.
type NeededImage struct {
	Kind NeededKind
	// Ref is the reference. For a NeededBuild it names the build as in Progress. Empty with NeededDefault.
	Ref string
	// Platform is that of the image, such as "linux/arm64". Empty means the provider's.
	Platform string
}

// NeededKind is where a needed image comes from.
type NeededKind string

// The kinds of needed images.
const (
	NeededPull    NeededKind = "pull"    // it is pulled if it is missing
	NeededBase    NeededKind = "base"    // it is pulled by what builds an image on it
	NeededBuild   NeededKind = "build"   // it is built
	NeededLocal   NeededKind = "local"   // it must be there: a file, an ID, or an image that may not be pulled
	NeededDefault NeededKind = "default" // the provider's choice, which has no name here
)

// Fetched reports whether images of the kind are fetched.
func (k NeededKind) Fetched() bool { return k == NeededPull || k == NeededBase || k == NeededDefault }

// ImageStorage describes where a provider stores images.
type ImageStorage struct {
	Platform string // of images that need no emulation: "linux/arm64"
	Free     int64  // bytes that images may still take; -1 if unknown
	// BasesApart reports whether a NeededBase is stored in another place than a NeededPull of the same name.
	BasesApart bool
	// Hidden reports whether it is not known which images are there. HasNeeded then returns false for those that are pulled.
	Hidden bool
}

// ImageLoader is an optional interface of a Provider with images of its own.
type ImageLoader interface {
	// LoadImages adds the images of a file under their names in it, as `docker load` does: an archive of `docker save`,
	// an OCI archive, or a folder with an OCI layout. It returns ID and Tags of each. A file without names is an
	// ErrConfig. The results are complete even if there is an error.
	LoadImages(ctx context.Context, file string) ([]Image, error)
}

// Progress is one step of fetching or building an image.
type Progress struct {
	Build          bool   // Status is the build step that has begun; Layer, Current and Total are not set
	Image          string // the image's reference; of a build PROJECT/SERVICE or PROJECT/DOCKERFILE, or a built-in image
	Layer          string // the layer's short ID; empty for the image as a whole
	Status         string // "Downloading", "Pull complete", "Unpacking" ...
	Current, Total int64  // bytes as the source has them, usually compressed; Total is 0 if unknown
}

// ImageBuild describes an image to build. Context, Mark, and Dockerfile or Text are required.
type ImageBuild struct {
	// Tags are the names of the image. A tag of another image moves to it. Without tags, the image has no name and
	// serves as a base for others.
	Tags []string
	// Context is the build context, a tar stream. Dockerfile is a path in it; if it is empty, the Dockerfile is Text, and
	// steps do not see it.
	Context    io.Reader
	Dockerfile string
	// Text is the content of a Dockerfile written by a user. The provider then chooses a builder that supports its
	// features. Memory and CPUs must be 0 then. It is empty for a Dockerfile that names its base by an ID.
	Text string
	// Args are the build arguments.
	Args map[string]string
	// CacheScope names the caches that steps of a user's Dockerfile mount (RUN --mount=type=cache). Only builds
	// with the same scope share them. Empty is a scope too.
	CacheScope string
	// Allowed lists unsafe features of the build that the user allowed. The provider logs them.
	Allowed []string
	// Network is the network of build steps, as in Spec. Empty means the provider's default for builds, which has
	// internet access.
	Network string
	// Memory, in bytes including swap, and CPUs, in cores, limit each build step. 0 means no limit.
	Memory int64
	CPUs   float64
	// Mark is stored with the image.
	Mark ImageMark
	// Progress is called with each step when it begins. Nil disables progress reports.
	Progress func(step string)
}

// ImageMark records what an image was built from.
type ImageMark struct {
	Environment string // the name of the environment
	Inputs      string // a hash of everything that went into the image; empty for an image that only serves as a base
	Base        string // the Inputs of the environment's own image; equal to Inputs if this is it
}

// Image describes an image.
type Image struct {
	ID      string
	Tags    []string // sorted; none if another image took its name
	User    string   // default user of commands; empty means root
	OnBuild []string // ONBUILD instructions, as lines of a Dockerfile; not set by Images
	Created time.Time
	Size    int64     // bytes, including layers shared with other images
	Mark    ImageMark // zero if not built by BuildImage
	InUse   bool      // a container uses it; set by Images only
}
