package fumehood

import "context"

// Preparer is the capability of a Provider to get what sandboxes are made of before the first of them is started.
type Preparer interface {
	// Needs returns a key of the images that a sandbox of the spec needs: specs with the same key need the same ones.
	// It reads the files that the spec names, whose faults are an ErrConfig, and asks no daemon.
	Needs(ctx context.Context, spec Spec) (key string, err error)
	// Prepare checks that a sandbox of the spec can be made, and pulls and builds the images that are missing. It
	// starts nothing. An image that was built for one project stays, for it is found by its content.
	Prepare(ctx context.Context, spec Spec) error
}
