package fumehood

import "context"

// Preparer is the capability of a Provider to get what sandboxes are made of before the first of them is started.
type Preparer interface {
	// ImageKey returns a key of the images that a sandbox of the spec needs: specs with the same key need the same ones.
	// It reads the files that the spec names, whose faults are an ErrConfig, and asks no daemon.
	ImageKey(ctx context.Context, spec Spec) (key string, err error)
	// Prepare checks that a sandbox of the spec can be made, and pulls and builds the images that are missing. It
	// starts nothing. An image that was built for one project stays, for it is found by its content. What it returns is
	// for Spec.Images of sandboxes that are to run just these images.
	Prepare(ctx context.Context, spec Spec, opts PrepareOptions) (images map[string]string, err error)
}

// PrepareOptions say how images are prepared. The zero value is right for a sandbox by itself.
type PrepareOptions struct {
	// Exclude are files and folders of this machine that no build gets, although its context has them: absolute paths,
	// symbolic links resolved. A context that lies in one of them is an ErrConfig.
	Exclude []string
}
