package fumehood

import "context"

// Cleaner is the capability of a Provider to find and remove what processes left that have ended.
type Cleaner interface {
	// Cleanup removes what dead owners left, and what opts names. It never touches what a living
	// process holds. One that cannot be judged from here is taken to live until its lease is over, where it has one. It returns everything of Fumehood's that there is, in the order of removal, and an
	// error where something that should go could not be removed.
	Cleanup(ctx context.Context, opts CleanupOptions) ([]Leftover, error)
}

// CleanupOptions says what Cleanup removes. The zero value removes what dead owners left.
type CleanupOptions struct {
	// Names are the sandboxes to remove, in place of what dead owners left; kept ones and those whose
	// owner cannot be judged from here may be among them. One that a living process holds, or that there is not, is an ErrConfig, and nothing is removed.
	Names []string
	// Caches removes what Fumehood made for later use: guest volumes, images.
	Caches bool
	// Foreign are patterns, as path.Match has them, of the names of foreign objects to remove: those whose labels name
	// Fumehood, and that no seal of this user's proves to be its own. A pattern that matches none is an ErrConfig, and
	// nothing is removed.
	Foreign []string
	// DryRun removes nothing and only tells what would be.
	DryRun bool
}

// Leftover is one object that Cleanup looked at.
type Leftover struct {
	Kind    string // "container", "network", "volume", "image", "folder"
	Name    string // the object's own name
	Sandbox string // the sandbox that it belongs to; empty for a cache
	Owner   string // "alive", "dead" or "unknown", as judged from here
	Kept    bool
	Cache   bool
	Foreign bool   // its labels name Fumehood, and no seal of this user's proves that: it stays unless Foreign names it
	Remove  bool   // it is to be removed
	Reason  string // why, or why not
	Removed bool   // it has been removed
	Err     error  // why it could not be removed
}
