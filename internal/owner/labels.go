package owner

// LabelPrefix is what the names of our labels begin with.
const LabelPrefix = "fumehood."

// The labels on everything that Fumehood makes in a daemon. They are set at creation.
const (
	// LabelOwner is the process that made the object, as ID.String has it.
	LabelOwner = "fumehood.owner"
	// LabelLease is until when an owner that cannot be judged by its process is taken to live, as RFC 3339 has it.
	LabelLease = "fumehood.lease"
	// LabelMaker, on the guest's image, which is there while a volume is filled from it, is the process that made it. It is not LabelOwner, which the image's
	// containers would take over.
	LabelMaker = "fumehood.maker"
	// LabelSandbox is the name of the sandbox that the object belongs to.
	LabelSandbox = "fumehood.sandbox"
	// LabelKept, with the value "true", exempts a sandbox from removal but by name.
	LabelKept = "fumehood.kept"
	// LabelExpires is when a kept sandbox's time is over, as RFC 3339 has it. Without it, it has none.
	LabelExpires = "fumehood.expires"
	// LabelKey, on a kept sandbox's objects, is the secret of its resident guests, in hexadecimal digits: with it
	// commands can be run in the sandbox. Who may read labels may run commands anyway, by the Engine.
	LabelKey = "fumehood.key"
	// LabelBinary, on a kept sandbox's objects, is its Spec.Binary.
	LabelBinary = "fumehood.binary"
	// LabelDefault, with the value "true", is on the containers of a sandbox's default service.
	LabelDefault = "fumehood.default"
	// LabelUser is what the names of the labels begin with that a Spec gives a sandbox.
	LabelUser = "fumehood.label."
	// LabelConfig is the file that describes a sandbox, and LabelEnv are the names of its variables, with commas between. Each
	// is empty where there is nothing to say.
	LabelConfig = "fumehood.config"
	LabelEnv    = "fumehood.env"
	// LabelUnenforced are the limits that the Engine does not hold, with commas between.
	LabelUnenforced = "fumehood.unenforced"
	// LabelMain says what a container's main process is, where it is ours: MainGuest.
	LabelMain = "fumehood.main"
	// MainGuest: a guest that serves the host that attaches to it.
	MainGuest = "guest"
	// LabelCache says what a cached object is ("guest", "env-image", "test-image"): it belongs to no sandbox, and
	// only `cleanup --caches` removes it, but for the old guests of other versions.
	LabelCache = "fumehood.cache"
	// LabelMade, on the guest's volume, is when it was made, as RFC 3339 has it.
	LabelMade = "fumehood.made"
	// LabelImage, on the image of an environment, says of what it was made and which tags it was given, in
	// JSON. What others build on it inherits the label, and has other tags.
	LabelImage = "fumehood.image"
)

// Values of LabelCache.
const (
	EnvImage   = "env-image" // on the images of environments
	GuestCache = "guest"     // on the guest's volumes
)
