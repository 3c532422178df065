package wire

import "time"

// Requests, replies and orders travel as JSON. Fields that name things of the sandbox are bytes, for
// there they need not be UTF-8.

// maxText is how long what is said in words may be, in bytes: JSON may make six of each.
const maxText = 4 << 10

// Clip makes a text that holds names, which may be as long as a host likes, fit a message: of a long one its
// beginning and its end stay.
func Clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText*3/4] + " [...] " + text[len(text)-maxText/4:]
}

// EndOfInput is what ends the input of a terminal, as Ctrl-D does: behind an unfinished line, whose last byte was not
// the end of one, the first only hands that line over (termios(3), VEOF).
func EndOfInput(last byte) string {
	const eof = "\x04"
	switch last {
	case 0, '\n', '\r', eof[0]: // nothing was typed, or a whole line, or the first of two
		return eof
	}
	return eof + eof
}

// Request opens a stream. Exactly one field is set.
type Request struct {
	Exec  *Exec  `json:"exec,omitempty"`
	File  *File  `json:"file,omitempty"`
	Move  *Move  `json:"move,omitempty"`
	Sweep *Sweep `json:"sweep,omitempty"`
	Dial  *Dial  `json:"dial,omitempty"`
	Talk  *Talk  `json:"talk,omitempty"`

	Reside  *Reside  `json:"reside,omitempty"`
	Reserve *Reserve `json:"reserve,omitempty"`
	List    *List    `json:"list,omitempty"`
	Join    *Join    `json:"join,omitempty"`
	Forget  *Forget  `json:"forget,omitempty"`
}

// Dial asks the guest to connect to a TCP port in its container. It answers with a Connected; then the bytes of
// the connection come on the channels Stdin, to the program, and Stdout.
type Dial struct {
	Addresses []string `json:"addresses"` // IP addresses, tried in this order
	Port      uint16   `json:"port"`
}

// Talk asks the guest to exchange datagrams with a UDP port in its container, at the first of the addresses at which a
// program takes them. It answers with a Connected; then datagrams come on the channels Stdin, to the program, and Stdout:
// see ReadDatagram. Each may be lost, as any of UDP may.
type Talk Dial

// Connected is the guest's answer to a Dial, a Talk and a Move.
type Connected struct {
	Failed string `json:"failed,omitempty"` // why it is not connected; empty when it is
}

// Reside asks a guest to outlive its connections, and to serve everybody who connects to an abstract unix
// socket and proves that he knows the secret: see Prove. From then on the guest ends with its container
// alone. It answers with a Resides.
type Reside struct {
	Name   string `json:"name"`   // the socket's, without the leading NUL
	Secret []byte `json:"secret"` // SecretSize bytes
}

// Resides is the guest's answer to a Reside.
type Resides struct {
	Failed string `json:"failed,omitempty"` // why it does not
	Taken  bool   `json:"taken,omitempty"`  // because there is a socket of that name: another guest resides there
}

const (
	// NobodyListens is the exit code of a relay that found no socket of its name.
	NobodyListens = 3
	// WasStopped is the exit code of a guest that was told to go on or to stop, as who was stopped is, when its connection ended.
	WasStopped = 4
)

// List asks a resident guest for its detached commands. It answers with an array of Detached in JSON, on channel
// Stdout.
type List struct{}

const (
	// MaxDetached is how many detached commands a guest keeps, running or ended.
	MaxDetached = 256
	// MaxListedArgs is how many bytes of a detached command's arguments a list tells.
	MaxListedArgs = 4 << 10
	// MaxList bounds the answer to a List, in bytes.
	MaxList = 4 << 20
)

// Reserve asks the resident guest of a service's own user for the number of a detached command that another user's
// resident guest is to keep: so numbers are the service's, and whoever asks for a list learns of whom to ask for more. Until
// it is forgotten, the number is listed with that User, and without Args. It answers with a Reserved.
type Reserve struct {
	User  []byte `json:"user"`            // as Cmd.User has it
	Above int    `json:"above,omitempty"` // the highest number that the other guest has had, for this one may be younger
}

// Reserved is the guest's answer to a Reserve.
type Reserved struct {
	ID     int     `json:"id,omitempty"`
	Failed *Failed `json:"failed,omitempty"` // why there is none; nil where there is one
}

// Detached describes a detached command.
type Detached struct {
	ID    int      `json:"id"`
	User  []byte   `json:"user,omitempty"`  // whose guest has the rest, where this one has only reserved the number
	Args  [][]byte `json:"args"`            // the first MaxListedArgs bytes of them
	AgeUS int64    `json:"age_us"`          // how long ago it was started, in microseconds
	Ended bool     `json:"ended,omitempty"` // its end is known
	Stdin bool     `json:"stdin,omitempty"` // it takes input
}

// Join makes its stream one that looks at a detached command, as the one is by which it was started. The
// guest answers with Started, or with Failed where there is no such command. See Order.Follow.
type Join struct {
	ID int `json:"id"`
}

// Forget asks a guest to drop a detached command that has ended. It answers with a Forgot.
type Forget struct {
	ID int `json:"id"`
}

// Forgot is the guest's answer to a Forget. That there is no such command is no failure.
type Forgot struct {
	Running bool `json:"running,omitempty"` // so that it was not forgotten
}

// Move asks the guest to connect to a unix socket of the host's, to prove there that it knows Secret (see Prove), and to
// serve that connection too: the host then sends its requests there. The first connection stays, for its end is the
// guest's. The guest answers with a Connected.
type Move struct {
	Path   []byte `json:"path"`   // absolute, as the guest sees it
	Secret []byte `json:"secret"` // SecretSize bytes
}

// SecretSize is the length of a secret in bytes.
const SecretSize = 32

// Sweep asks a guest to kill what the commands of another one left that has died: see the guest's sweep.
// It answers with a Swept.
type Sweep struct {
	Since uint64 `json:"since,omitempty"` // when the dead one began, as its Swept told it; 0: none has died
	User  *int   `json:"user,omitempty"`  // the dead one's user id; nil for the id of who is asked
}

// Swept says what a guest has done about a Sweep.
type Swept struct {
	User      int `json:"user"`                // the guest's own user id
	Survivors int `json:"survivors,omitempty"` // counts processes that could not be killed
	// Lacks says that the guest is root's and has fewer capabilities than its container's processes may have.
	Lacks bool `json:"lacks,omitempty"`
	// Began is when the guest itself did, in ticks since its machine's boot.
	Began uint64 `json:"began"`
	// PIDsLimits is how often the container's limit of processes was met since its start.
	PIDsLimits int64 `json:"pids_limits,omitempty"`
}

// What can be done to a file. The guest answers each with a FileReply, before it sends or takes content;
// after content that it took it sends another.
const (
	Stat     = "stat"     // describes a path, without following a link at its end
	Identify = "identify" // tells what a path leads to, following links
	Read     = "read"     // sends a regular file's content on channel Stdout
	Write    = "write"    // takes a regular file's content on channel Stdin
	Walk     = "walk"     // sends WalkEntries on channel Stdout, each a line of JSON
	Upload   = "upload"   // takes a tar stream on channel Stdin, and extracts it into a directory
	Download = "download" // sends a path as a tar stream on channel Stdout
	Mkdir    = "mkdir"
	Remove   = "remove"
	Rename   = "rename"
	Symlink  = "symlink"
	Chmod    = "chmod"
	Chown    = "chown"
)

// File asks for something to be done to a file, as the guest's user.
type File struct {
	Op     string `json:"op"`
	Path   []byte `json:"path"`             // absolute
	Mode   uint32 `json:"mode,omitempty"`   // of a write, mkdir or chmod, as fs.FileMode has it
	Owner  []byte `json:"owner,omitempty"`  // of a write or chown, as Cmd.User has it
	Target []byte `json:"target,omitempty"` // of a rename or symlink
	Offset int64  `json:"offset,omitempty"` // of a read
	Length int64  `json:"length,omitempty"` // of a read; negative for all
	Depth  int    `json:"depth,omitempty"`  // of a walk; negative for all
	Atomic bool   `json:"atomic,omitempty"` // of a write
	All    bool   `json:"all,omitempty"`    // of a mkdir, with the parents; of a remove or chown, with what is below
}

// FileReply is the guest's answer. Exactly one of its fields is set, or none: then all is well.
type FileReply struct {
	Info   *FileInfo  `json:"info,omitempty"`
	ID     *FileID    `json:"id,omitempty"`
	Failed *FileError `json:"failed,omitempty"`
}

// FileInfo describes a file.
type FileInfo struct {
	Size    int64  `json:"size"`     // bytes; 0 for what is no regular file
	Mode    uint32 `json:"mode"`     // as fs.FileMode has it
	ModTime int64  `json:"mod_time"` // nanoseconds since 1970
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Link    []byte `json:"link,omitempty"` // where a link points to
}

// FileID identifies a file, for as long as it is there, among those of all machines.
type FileID struct {
	Boot   string `json:"boot"`   // of the kernel, as its boot_id has it
	Device uint64 `json:"device"` // as stat(2) has them
	Inode  uint64 `json:"inode"`
}

// BootID is the file in which Linux tells it.
const BootID = "/proc/sys/kernel/random/boot_id"

// MaxWalkLine bounds the line of a WalkEntry, in bytes.
const MaxWalkLine = 64 << 10

// WalkEntry is what a walk has met. At least one of Info and Failed is set.
type WalkEntry struct {
	Path   []byte     `json:"path"` // relative to the root, clean; "." for the root
	Info   *FileInfo  `json:"info,omitempty"`
	Failed *FileError `json:"failed,omitempty"`
}

// FileError says why something could not be done to a file.
type FileError struct {
	Errno      int    `json:"errno,omitempty"` // Linux's number; 0 where it was not the kernel's word
	NotRegular bool   `json:"not_regular,omitempty"`
	BadContent bool   `json:"bad_content,omitempty"` // what was sent is wrong: no tar stream, say
	NoUser     bool   `json:"no_user,omitempty"`     // the owner is not known
	Text       string `json:"text"`
}

// Exec asks for a command.
type Exec struct {
	Args [][]byte `json:"args"`
	Env  [][]byte `json:"env,omitempty"` // NAME=value, added to the guest's own and winning over it
	Dir  []byte   `json:"dir,omitempty"` // empty for the guest's own
	// Stdin says that input comes on the stream; else the command's is empty, or its terminal.
	Stdin bool `json:"stdin,omitempty"`
	// Terminal is the size of the terminal that the command gets; nil for none.
	Terminal *Size `json:"terminal,omitempty"`
	// Live has output sent as it comes. Else its end is kept in the guest, Caps bytes of each stream,
	// and sent when the command has ended.
	Live bool     `json:"live,omitempty"`
	Caps [2]int64 `json:"caps"` // stdout, stderr
	// Terse lets the guest leave out that the command has started, where it ends within SaidWithin: one word less
	// to be waited for.
	Terse bool `json:"terse,omitempty"`
	// GraceMS is how long a kill waits between SIGTERM and SIGKILL, in milliseconds.
	GraceMS int64 `json:"grace_ms"`
	// KillRest has what the command leaves running killed when its own process ends, before the Exit is sent.
	KillRest bool `json:"kill_rest,omitempty"`
	// Rlimits are set for the command alone; nil for none.
	Rlimits *Rlimits `json:"rlimits,omitempty"`
	// Detach makes the command outlive its stream: it is one of the guest's detached commands, by the number
	// that Started tells. Only in a resident guest, and without Live: the end of the output, Caps bytes of each
	// stream, is kept until the command is forgotten, and a host gets none before it orders to Follow.
	Detach bool `json:"detach,omitempty"`
	// ID is the number of a detached command that was reserved for it; 0 for the next that this guest has.
	ID int `json:"id,omitempty"`
	// WallMS is after how many milliseconds a detached command is killed; 0 for no limit.
	WallMS int64 `json:"wall_ms,omitempty"`
}

// SaidWithin is how long after its start the host is told of a terse command that runs.
const SaidWithin = 20 * time.Millisecond

// Rlimits are limits as setrlimit(2) has them, soft and hard. 0 sets none.
type Rlimits struct {
	CPU       int64 `json:"cpu,omitempty"`        // seconds; the hard limit is one more
	FileSize  int64 `json:"file_size,omitempty"`  // bytes
	OpenFiles int64 `json:"open_files,omitempty"` // descriptors
	Processes int64 `json:"processes,omitempty"`  // processes and threads of the user
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Order is a message of the host about a command. Exactly one field is set.
type Order struct {
	Signal int   `json:"signal,omitempty"` // to the command's process group
	Kill   bool  `json:"kill,omitempty"`   // the command and all its descendants
	Resize *Size `json:"resize,omitempty"`
	// Follow has the output of a detached command sent, first what is kept of it, then what comes, and in the
	// end the Exit. Where what is sent does not go on where it left off, its new offset comes first, on the
	// channel StdoutAt or StderrAt, as 8 bytes, big-endian.
	Follow bool `json:"follow,omitempty"`
}

// Reply is a message of the guest about a command. Exactly one field is set. The first is Started or
// Failed; Failed and Exit are the last.
type Reply struct {
	Started *Started `json:"started,omitempty"`
	Failed  *Failed  `json:"failed,omitempty"`
	Exit    *Exit    `json:"exit,omitempty"`
}

// Started says that the program runs.
type Started struct {
	ID int `json:"id,omitempty"` // of a detached command
}

// What could not be had when a program did not start.
const (
	NoProgram    = "program"        // there is none of that name
	NoExecutable = "not executable" // the file is there
	NoDir        = "directory"
	NoStart      = "start" // the program is all right: too many arguments, say
	NoResources  = "resources"
	UsedUp       = "used up"  // what programs in the sandbox may have together is used up: its processes, its memory
	Hindered     = "hindered" // a process in the sandbox has killed or stopped what was to start it
	NoRlimit     = "rlimit"   // the kernel does not hold this user to such a limit
	NoRoom       = "room"     // there are MaxDetached detached commands
	NoDetached   = "detached" // there is no such detached command, or nobody here to keep one
)

// Failed says that the program could not be started: nothing ran.
type Failed struct {
	What string `json:"what"`
	Text string `json:"text"`
}

// Exit says how the command ended.
type Exit struct {
	Code   int  `json:"code"`             // the program's own; 128+n for signal n; -1 when lost
	Signal int  `json:"signal,omitempty"` // that ended it
	Lost   bool `json:"lost,omitempty"`   // the command's supervisor died: how it ended is not known
	// Survivors counts processes of a killed command that could not be killed.
	Survivors int `json:"survivors,omitempty"`

	Totals [2]int64 `json:"totals"` // bytes that were written: stdout, stderr

	UserUS   int64 `json:"user_us"`   // CPU time of the command and what it waited for, in microseconds
	SystemUS int64 `json:"system_us"` // as above
	MaxRSS   int64 `json:"max_rss"`   // bytes: of the largest process among them

	OOMKills   int64 `json:"oom_kills"`   // in the container while the command ran
	PIDsLimits int64 `json:"pids_limits"` // how often the container's limit was met meanwhile
	Peak       int64 `json:"peak"`        // the container's peak of memory since it started, bytes; 0 where it cannot be read

	// Of a detached command:
	WallUS   int64 `json:"wall_us,omitempty"`   // from its start to its end, in microseconds
	TimedOut bool  `json:"timed_out,omitempty"` // WallMS had passed
}
