package wire

import "time"

// Messages are sent as JSON, except those that have a Pack method. Fields with names from the sandbox are bytes, since
// such names need not be UTF-8.

// maxText is the longest error text, in bytes. In JSON one byte can take six.
const maxText = 4 << 10

// Clip shortens a text that contains names, which may be long, so that it fits a message. A long text keeps its
// beginning and its end.
func Clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText*3/4] + " [...] " + text[len(text)-maxText/4:]
}

// EndOfInput returns what ends the input of a terminal, as Ctrl-D does. last is the last byte of the input, 0 if
// there was none. After an incomplete line the first EOF character only delivers the line, and a second one is needed
// (termios(3), VEOF).
func EndOfInput(last byte) string {
	const eof = "\x04"
	switch last {
	case 0, '\n', '\r', eof[0]: // no input, a complete line, or the first of two EOF characters
		return eof
	}
	return eof + eof
}

// Request opens a stream. Exactly one field is set.
type Request struct {
	Exec  *Exec  `json:"-"` // packed, see Encode
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
	Restart *Restart `json:"restart,omitempty"`
	KillAll *KillAll `json:"kill_all,omitempty"`
}

// KillAll asks the guest to kill all processes of the container, see the killAll method of the guest. The guest answers
// with a KilledAll when they are gone, or when it gives up.
type KillAll struct{}

// KilledAll is the guest's answer to a KillAll.
type KilledAll struct {
	Survivors int `json:"survivors,omitempty"` // number of processes that could not be killed
}

// Dial asks the guest to connect to a TCP port in its container. The guest answers with a Connected. Then the
// connection's bytes follow: those to the program on channel Stdin, those from it on Stdout.
type Dial struct {
	Addresses []string `json:"addresses"` // IP addresses, tried in this order
	Port      uint16   `json:"port"`
}

// Talk asks the guest to exchange datagrams with a UDP port in its container. It uses the first address at which a
// program receives datagrams. The guest answers with a Connected. Then datagrams follow, those to the program on
// channel Stdin and those from it on Stdout, encoded as by AppendDatagram. Datagrams may be lost, as with UDP.
type Talk Dial

// Connected is the guest's answer to a Dial, a Talk and a Move.
type Connected struct {
	Failed string `json:"failed,omitempty"` // why the connection failed; empty on success
}

// Reside asks a guest to outlive its connections. It then serves everybody who connects to an abstract unix socket
// and proves knowledge of the secret (see Prove), and ends only with its container, or if nobody has been connected for
// its linger. The guest answers with a Resides.
type Reside struct {
	Name     string `json:"name"`                // of the socket, without the leading NUL
	Secret   []byte `json:"secret"`              // SecretSize bytes
	LingerMS int64  `json:"linger_ms,omitempty"` // in milliseconds; 0 means forever
}

// Resides is the guest's answer to a Reside.
type Resides struct {
	Failed string `json:"failed,omitempty"` // why it is not resident; empty on success
	Taken  bool   `json:"taken,omitempty"`  // the socket's name is in use by another resident guest
}

const (
	// NobodyListens is the exit code of a relay that found no socket of its name.
	NobodyListens = 3
	// WasStopped is the exit code of a guest that received a stop signal or SIGCONT when its connection ended. So it
	// was probably stopped.
	WasStopped = 4
	// NoSuchUser is the exit code of a guest that should become a user whom the image does not have.
	NoSuchUser = 5
	// NotRoot is the exit code of a guest that may not become another user.
	NotRoot = 6
)

// List asks a resident guest for its detached commands. It answers with a JSON array of Detached on channel Stdout.
type List struct{}

const (
	// MaxDetached is how many detached commands a guest keeps, running or ended.
	MaxDetached = 256
	// MaxListedArgs is how many bytes of a detached command's arguments a list contains.
	MaxListedArgs = 4 << 10
	// MaxList bounds the answer to a List, in bytes.
	MaxList = 4 << 20
)

// Reserve asks the resident guest of a service's own user for the number of a detached command that another user's
// resident guest will keep. So numbers are unique in the service, and a list shows which other guests to ask. Until
// it is forgotten, the number is listed with that User and without Args. The guest answers with a Reserved.
type Reserve struct {
	User  []byte `json:"user"`            // in the form of Cmd.User
	Above int    `json:"above,omitempty"` // the highest number in use by the other guest, which may be older than this one
}

// Reserved is the guest's answer to a Reserve.
type Reserved struct {
	ID     int     `json:"id,omitempty"`
	Failed *Failed `json:"failed,omitempty"` // why no number was reserved; nil on success
}

// Detached describes a detached command.
type Detached struct {
	ID    int      `json:"id"`
	User  []byte   `json:"user,omitempty"`  // the user whose guest keeps the command; empty if this guest keeps it
	Args  [][]byte `json:"args"`            // their first MaxListedArgs bytes
	AgeUS int64    `json:"age_us"`          // microseconds since its start
	Ended bool     `json:"ended,omitempty"` // the command has ended
	Stdin bool     `json:"stdin,omitempty"` // it accepts input
}

// Join lets its stream watch a detached command, like the stream that started it. The guest answers with Started, or
// with Failed if there is no such command. See Order.Follow.
type Join struct {
	ID int `json:"id"`
	// Kept ends the output with what was written until Order.Follow. If the command runs, the Exit then reports that its end
	// is unknown.
	Kept bool `json:"kept,omitempty"`
}

// Forget asks a guest to drop a detached command that has ended. It answers with a Forgot.
type Forget struct {
	ID int `json:"id"`
}

// Forgot is the guest's answer to a Forget. It is not an error if there is no such command.
type Forgot struct {
	Running bool `json:"running,omitempty"` // the command runs, and was not dropped
}

// Move asks the guest to connect to a unix socket of the host, to prove there that it knows Secret (see Prove), and
// to serve that connection too. The host then sends its requests over it. The first connection stays open, and the
// guest ends with it. The guest answers with a Connected.
type Move struct {
	Path   []byte `json:"path"`   // absolute, as seen by the guest
	Secret []byte `json:"secret"` // SecretSize bytes
	// Listen makes a resident guest use the connection only to receive a listening socket, as an SCM_RIGHTS message of
	// one byte (unix(7)). It serves every host that connects there and knows the residence's secret. It confirms with
	// one byte.
	Listen bool `json:"listen,omitempty"`
}

// SecretSize is the length of a secret in bytes.
const SecretSize = 32

// Sweep asks a guest to kill the processes that a dead guest's commands left, see the sweep method of the guest. The
// guest answers with a Swept.
type Sweep struct {
	Since uint64 `json:"since,omitempty"` // Swept.Began of the dead guest; 0: no guest has died
	PID   int    `json:"pid,omitempty"`   // Swept.PID of the dead guest; it is killed if it runs on without its host
	User  *int   `json:"user,omitempty"`  // the dead guest's user id; nil for that of the guest that is asked
}

// Swept is the guest's answer to a Sweep.
type Swept struct {
	User      int `json:"user"`                // the guest's own user id
	Survivors int `json:"survivors,omitempty"` // number of processes that could not be killed
	// Lacks is true if the guest runs as root and lacks capabilities that its container's processes may have.
	Lacks bool `json:"lacks,omitempty"`
	// Began is the guest's own start time, in ticks since its machine's boot.
	Began uint64 `json:"began"`
	// PID is the guest's own process id; 0 if it is not known.
	PID int `json:"pid,omitempty"`
	// Dir is the guest's working directory; empty if it is not known. It is that of its container.
	Dir string `json:"dir,omitempty"`
	// ProcessLimit describes the container's limit on processes and how many there are; empty if it has none.
	ProcessLimit string `json:"process_limit,omitempty"`
	// PIDsLimits is how often the container has reached its limit on processes since its start.
	PIDsLimits int64 `json:"pids_limits,omitempty"`
	// OOMKills is the number of its processes that the out-of-memory killer has killed since its start.
	OOMKills int64 `json:"oom_kills,omitempty"`
}

// The file operations. The guest answers each with a FileReply, before it sends or receives content. After receiving
// content it sends another FileReply.
const (
	Stat     = "stat"     // describes a path, without following a link at its end
	Identify = "identify" // identifies the file at a path, following links
	Read     = "read"     // sends a regular file's content on channel Stdout
	Write    = "write"    // receives a regular file's content on channel Stdin
	Walk     = "walk"     // sends WalkEntries on channel Stdout, one line of JSON each
	Upload   = "upload"   // receives a tar stream on channel Stdin, and extracts it into a directory
	Download = "download" // sends a path as a tar stream on channel Stdout
	Mkdir    = "mkdir"
	Remove   = "remove"
	Rename   = "rename"
	Symlink  = "symlink"
	Chmod    = "chmod"
	Chown    = "chown"
)

// File requests a file operation, which the guest carries out as its own user.
type File struct {
	Op     string `json:"op"`
	Path   []byte `json:"path"`             // absolute
	Mode   uint32 `json:"mode,omitempty"`   // for write, mkdir and chmod: an fs.FileMode
	Owner  []byte `json:"owner,omitempty"`  // for write, mkdir and chown, in the form of Cmd.User
	Target []byte `json:"target,omitempty"` // for rename and symlink
	Offset int64  `json:"offset,omitempty"` // for read
	Length int64  `json:"length,omitempty"` // for read; negative for all
	Depth  int    `json:"depth,omitempty"`  // for walk; negative for all
	Atomic bool   `json:"atomic,omitempty"` // for write
	// ModTime is for write: nanoseconds since 1970. 0 means the time of the write.
	ModTime int64 `json:"mod_time,omitempty"`
	All     bool  `json:"all,omitempty"` // for mkdir: with parents; for remove and chown: recursive
}

// FileReply is the guest's answer to a File. At most one field is set. An empty reply means success.
type FileReply struct {
	Info   *FileInfo  `json:"info,omitempty"`
	ID     *FileID    `json:"id,omitempty"`
	Failed *FileError `json:"failed,omitempty"`
}

// FileInfo describes a file.
type FileInfo struct {
	Size    int64  `json:"size"`     // bytes; 0 unless it is a regular file
	Mode    uint32 `json:"mode"`     // an fs.FileMode
	ModTime int64  `json:"mod_time"` // nanoseconds since 1970
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Link    []byte `json:"link,omitempty"` // the target of a symbolic link
}

// FileID identifies a file among those of all machines, as long as the file exists.
type FileID struct {
	Boot   string `json:"boot"`   // the kernel's boot_id
	Device uint64 `json:"device"` // as returned by stat(2), like Inode
	Inode  uint64 `json:"inode"`
}

// BootID is the file from which Linux's boot_id is read.
const BootID = "/proc/sys/kernel/random/boot_id"

// MaxWalkLine bounds the line of a WalkEntry, in bytes.
const MaxWalkLine = 64 << 10

// WalkEntry is an entry of a walk. At least one of Info and Failed is set.
type WalkEntry struct {
	Path   []byte     `json:"path"` // relative to the root, clean; "." for the root
	Info   *FileInfo  `json:"info,omitempty"`
	Failed *FileError `json:"failed,omitempty"`
}

// FileError is the error of a file operation.
type FileError struct {
	Errno      int    `json:"errno,omitempty"` // Linux's number; 0 if the kernel did not return the error
	NotRegular bool   `json:"not_regular,omitempty"`
	BadContent bool   `json:"bad_content,omitempty"` // the received content is invalid, for example not a tar stream
	NoUser     bool   `json:"no_user,omitempty"`     // the owner is unknown
	Text       string `json:"text"`
}

// Exec asks the guest to run a command.
type Exec struct {
	Args [][]byte
	Env  [][]byte // NAME=value, added to the guest's environment and overriding it
	Dir  []byte   // empty for the guest's own
	// Stdin is true if input comes on the stream. Otherwise the command's input is empty, or its terminal.
	Stdin bool
	// Terminal is the size of the command's terminal; nil for none.
	Terminal *Size
	// Live sends output as it comes, and blocks the program if the host is slow. Otherwise the guest keeps the end of
	// the output, Caps bytes of each stream. It sends it when the command has ended or, if the command runs longer,
	// every AheadEvery, so that the host has it if the sandbox ends. Missing output is reported as by Order.Follow.
	Live bool
	Caps [2]int64 // stdout, stderr
	// Terse lets the guest omit Started if the command ends within SaidWithin. This saves one message to wait for.
	Terse bool
	// GraceMS is how long a kill waits between SIGTERM and SIGKILL, in milliseconds.
	GraceMS int64
	// KillRest kills the command's remaining descendants when its own process ends, before the Exit is sent.
	KillRest bool
	// Rlimits are set for this command only; nil for none.
	Rlimits *Rlimits
	// Detach makes the command outlive its stream. It becomes one of the guest's detached commands, under the number
	// in Started. This requires a resident guest, and excludes Live. The end of the output, Caps bytes of each stream,
	// is kept until the command is forgotten. A host gets no output until it sends Order.Follow.
	Detach bool
	// ID is the reserved number of a detached command; 0 for the guest's next number. ProgramID marks the service's own program,
	// detached or not.
	ID int
	// WallMS is the number of milliseconds after which a detached command is killed; 0 for no limit.
	WallMS int64
	// CPUUS limits the processor time of the command and all its descendants, in microseconds; 0 for no limit. A command that
	// exceeds it is killed. Without a counter of processor time the command does not start.
	CPUUS int64
	// Check marks a health check. It does not count as another command, see Exit.Alone.
	Check bool
}

// AheadEvery is the interval at which the guest sends output of a command that runs on and is not Live.
const AheadEvery = 20 * time.Millisecond

// SaidWithin is how long after its start the guest reports a terse command that still runs.
const SaidWithin = 20 * time.Millisecond

// Rlimits are soft and hard limits of setrlimit(2). 0 means no limit.
type Rlimits struct {
	CPU       int64 // seconds; the hard limit is one more
	FileSize  int64 // bytes
	OpenFiles int64 // file descriptors
	Processes int64 // processes and threads of the user
}

// Size is the size of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Order is a message from the host about a command. Exactly one field is set.
type Order struct {
	Signal int   `json:"signal,omitempty"` // sent to the command's process group
	Kill   bool  `json:"kill,omitempty"`   // kills the command and all its descendants
	Resize *Size `json:"resize,omitempty"`
	// Follow requests the output of a detached command: first what is kept, then new output, and in the end the Exit.
	// If output is missing in between, the offset of the next byte is sent first. It is sent on channel StdoutAt or
	// StderrAt as 8 bytes, big-endian.
	Follow bool `json:"follow,omitempty"`
}

// Reply is a message from the guest about a command. Exactly one field is set. The first reply is Started or Failed.
// Failed and Exit are the last.
type Reply struct {
	Started *Started
	Failed  *Failed
	Exit    *Exit
}

// Started means that the program runs.
type Started struct {
	ID int // of a detached command
}

// The reasons why a program did not start.
const (
	NoProgram    = "program"        // no program of that name
	NoExecutable = "not executable" // the file exists
	NoDir        = "directory"
	NoStart      = "start" // the program exists, but cannot be started: too many arguments, for example
	NoResources  = "resources"
	UsedUp       = "used up"   // the sandbox has reached its limit on memory
	NoProcesses  = "processes" // the sandbox has reached its limit on processes
	Hindered     = "hindered"  // a process in the sandbox has killed or stopped the process that starts the program
	NoRlimit     = "rlimit"    // the kernel does not apply such a limit to this user
	NoCounter    = "counter"   // processor time is not counted, so it cannot be limited
	NoRoom       = "room"      // there are already MaxDetached detached commands
	NoDetached   = "detached"  // no such detached command, or the guest keeps none
)

// Failed means that the program could not be started, and nothing ran.
type Failed struct {
	What string `json:"what"`
	Text string `json:"text"`
}

// Exit reports how the command ended.
type Exit struct {
	Code   int  // the program's own; 128+n for signal n; -1 if Lost
	Signal int  // the signal that killed it
	Lost   bool // the command's supervisor died, so its end is unknown
	Killed bool // a host has ordered its kill, or has sent it SIGKILL
	// Alone reports that no other command of this guest had processes at any time while the command ran. The service's
	// own program is a command, health checks are not.
	Alone bool
	// Survivors is the number of processes of a killed command that could not be killed.
	Survivors int

	Totals [2]int64 // bytes written: stdout, stderr

	UserUS   int64 // CPU time of the command and of all its descendants that have ended, in microseconds
	SystemUS int64 // as above
	CPUUS    int64 // if it is above Exec.CPUUS: the processor time of the command and all its descendants, in microseconds; else 0
	MaxRSS   int64 // bytes, of the largest of the command and the processes that it waited for

	OOMKills   int64 // in the container while the command ran
	PIDsLimits int64 // how often the container reached its limit while the command ran
	Peak       int64 // the container's peak memory since its start, in bytes; 0 if unknown

	// For detached commands:
	WallUS   int64 // from its start to its end, in microseconds
	TimedOut bool  // WallMS was exceeded
}
