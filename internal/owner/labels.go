package owner

// LabelPrefix is the prefix of the names of Fumehood's labels.
const LabelPrefix = "fumehood."

// The labels of everything that Fumehood creates in a daemon. They are set at creation.
const (
	// LabelOwner is the process that created the object, in the form of ID.String.
	LabelOwner = "fumehood.owner"
	// LabelLease is the time until which an owner that cannot be judged is assumed to live, in RFC 3339.
	LabelLease = "fumehood.lease"
	// LabelMaker, on the guest's image, is the process that created it. The image exists while a volume is filled from
	// it. It does not have LabelOwner, because its containers would inherit that.
	LabelMaker = "fumehood.maker"
	// LabelSandbox is the name of the object's sandbox.
	LabelSandbox = "fumehood.sandbox"
	// LabelKept, with the value "true", means that the sandbox is removed only by name or when it expires.
	LabelKept = "fumehood.kept"
	// LabelExpires is when a kept sandbox expires, in RFC 3339. Without it, the sandbox does not expire.
	LabelExpires = "fumehood.expires"
	// LabelRenewed, on a volume that only has a later LabelExpires, is the name of its sandbox.
	LabelRenewed = "fumehood.renewed"
	// LabelKey, on a kept sandbox's objects, is the secret of its resident guests, in hexadecimal. It allows running
	// commands in the sandbox. Anyone who may read labels may run commands through the Engine anyway.
	LabelKey = "fumehood.key"
	// LabelBinary, on a kept sandbox's objects, is its Spec.Binary.
	LabelBinary = "fumehood.binary"
	// LabelDefault, with the value "true", marks the containers of a sandbox's default service.
	LabelDefault = "fumehood.default"
	// LabelUser is the prefix of the names of labels that a Spec gives a sandbox.
	LabelUser = "fumehood.label."
	// LabelConfig is the file that describes a sandbox. LabelEnv is the names of its variables, separated by "=", which no
	// name has. Both may be empty.
	LabelConfig = "fumehood.config"
	LabelEnv    = "fumehood.env"
	// LabelUnenforced is the names of the limits that the Engine does not enforce, separated by commas.
	LabelUnenforced = "fumehood.unenforced"
	// LabelSeccomp is the Spec.Seccomp of a sandbox; it may be empty.
	LabelSeccomp = "fumehood.seccomp"
	// LabelMain is the kind of a container's main process if that is ours: MainGuest.
	LabelMain = "fumehood.main"
	// MainGuest is a guest that serves the host that attaches to it.
	MainGuest = "guest"
	// LabelCache is the kind of a cached object: "guest", "env-image" or "test-image". A cached object belongs to no
	// sandbox. Only `cleanup --caches` removes it, except for old guests of other versions.
	LabelCache = "fumehood.cache"
	// LabelMade, on a guest volume, is when it was created, in RFC 3339.
	LabelMade = "fumehood.made"
	// LabelImage, on the image of an environment, is JSON with the image's inputs and the tags that it was given.
	// Images that are built on top of it inherit the label, but have other tags.
	LabelImage = "fumehood.image"
)

// Values of LabelCache.
const (
	EnvImage   = "env-image" // images of environments
	GuestCache = "guest"     // guest volumes
)
