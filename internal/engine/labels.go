package engine

// The labels on everything that Lazaret makes in a daemon. They are set at creation.
const (
	// LabelOwner is the process that made the object, as package owner writes it.
	LabelOwner = "lazaret.owner"
	// LabelSandbox is the name of the sandbox that the object belongs to.
	LabelSandbox = "lazaret.sandbox"
	// LabelKept, with the value "true", exempts a sandbox from removal but by name.
	LabelKept = "lazaret.kept"
	// LabelMain says what a container's main process is, where it is ours: MainGuest.
	LabelMain = "lazaret.main"
	// MainGuest: a guest that serves the host that attaches to it.
	MainGuest = "guest"
	// LabelCache says what a cached object is ("guest", "env-image", "test-image"): it belongs to no sandbox, and
	// only `cleanup --caches` removes it, but for the old guests of other versions.
	LabelCache = "lazaret.cache"
	// LabelGuestVolume, on the guest's image, names the volume that was completely filled from it.
	LabelGuestVolume = "lazaret.guest-volume"
	// LabelImage, on the image of an environment, says of what it was made and which tags it was given, in
	// JSON. What others build on it inherits the label, and has other tags.
	LabelImage = "lazaret.image"
)

// EnvImage is the value of LabelCache on the images of environments.
const EnvImage = "env-image"
