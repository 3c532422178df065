package api

// HeaderFile is the header of an answer with a whole file: its FileInfo, as JSON in base64.
const HeaderFile = "Fumehood-File"

// Status is how much a server has to do, for a client that chooses among servers.
type Status struct {
	Version
	Provider        string `json:"provider" doc:"name of the server's provider"`
	Draining        bool   `json:"draining,omitempty" doc:"the server is about to end, and starts no sandboxes"`
	Sandboxes       int    `json:"sandboxes" doc:"started and not removed, without kept ones"`
	Starting        int    `json:"starting" doc:"sandboxes that are being started"`
	MaxSandboxes    int    `json:"max_sandboxes" doc:"highest number of sandboxes, started or being started"`
	CPUs            int    `json:"cpus,omitempty" doc:"of the machine on which sandboxes run; 0 if unknown"`
	Memory          int64  `json:"memory,omitempty" doc:"bytes of the machine on which sandboxes run; 0 if unknown"`
	MemoryAvailable int64  `json:"memory_available,omitempty" doc:"bytes of the server's machine that can be allocated; 0 if unknown"`
	HasImage        bool   `json:"has_image,omitempty" doc:"the image that the request names is there, so that nothing is pulled"`
}

// Cleanup says what a cleanup removes. The fields are those of provider.CleanupOptions.
type Cleanup struct {
	Names  []string `json:"names,omitempty" doc:"kept sandboxes to remove, instead of what ended processes left"`
	DryRun bool     `json:"dry_run,omitempty" doc:"remove nothing"`
}

// Leftover is an object that a cleanup examined. The fields are those of provider.Leftover.
type Leftover struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Sandbox string `json:"sandbox,omitempty"`
	Owner   string `json:"owner"`
	Kept    bool   `json:"kept,omitempty"`
	Cache   bool   `json:"cache,omitempty"`
	Foreign bool   `json:"foreign,omitempty"`
	Remove  bool   `json:"remove,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Removed bool   `json:"removed,omitempty"`
	Error   *Error `json:"error,omitempty" doc:"why it could not be removed"`
}
