package provider

import (
	"context"
	"io"
	"time"
)

// ImageBuilder is the capability of a Provider to build images, and to keep those that it has built.
type ImageBuilder interface {
	// FindImage describes an image that is there; false where there is none of that name. No registry is
	// asked.
	FindImage(ctx context.Context, ref string) (Image, bool, error)
	// PullImage describes an image, and fetches it first where there is none of that name.
	PullImage(ctx context.Context, ref string) (Image, error)
	// BuildImage builds an image and returns its id. A step that fails is an ErrConfig that tells the step
	// and the end of what it printed. When ctx ends so does the build, and none of its tags has moved.
	BuildImage(ctx context.Context, b ImageBuild) (id string, err error)
	// Images lists the images that BuildImage made, newest first.
	Images(ctx context.Context) ([]Image, error)
	// RemoveImage removes an image that Images has listed: its tags, and it too where no other name of it
	// is left. One that a container uses is an ErrUnavailable, and stays.
	RemoveImage(ctx context.Context, image Image) error
}

// ImageBuild says what image to build. Context, Dockerfile and Mark are required.
type ImageBuild struct {
	// Tags are the names that the image gets; those that other images have move to it. None leaves an
	// image without a name, to build others on.
	Tags []string
	// Context is the build's context, a tar stream, and Dockerfile a path in it.
	Context    io.Reader
	Dockerfile string
	// Text is the Dockerfile's content where a user has written it: then the provider chooses a builder that can do
	// what it asks for. Memory and CPUs are 0 then. Empty is for one that names its base by an id.
	Text string
	// Args are the build's arguments.
	Args map[string]string
	// CacheScope names the caches that steps of a user's Dockerfile mount (RUN --mount=type=cache): builds of the same
	// scope share them, and no others. Empty is a scope as well.
	CacheScope string
	// Allowed is what of the build is not safe and the user has allowed. The provider logs it.
	Allowed []string
	// Network is the network of the steps that run something, as in Spec. Empty means the provider's own
	// choice for builds, which has access to the internet.
	Network string
	// Memory in bytes, swap included, and CPUs in cores bound each step that runs something. 0 means no
	// limit.
	Memory int64
	CPUs   float64
	// Mark is kept with the image.
	Mark ImageMark
	// Progress is told each step when it begins. Nil tells nobody.
	Progress func(step string)
}

// ImageMark says what an image was built of.
type ImageMark struct {
	Environment string // the name of the environment
	Inputs      string // a hash of all that the image was made of; empty for one to build others on
	Base        string // the Inputs of the environment's own image: Inputs again, if this is it
}

// Image is what a provider says of an image.
type Image struct {
	ID      string
	Tags    []string // sorted; none for one that has lost its name to another
	User    string   // whom commands run as; empty for root
	OnBuild []string // what builds on it run first, as lines of a Dockerfile; Images leaves it out
	Created time.Time
	Size    int64     // bytes, with what it shares with others
	Mark    ImageMark // zero for what BuildImage has not made
	InUse   bool      // a container uses it; only Images tells
}
