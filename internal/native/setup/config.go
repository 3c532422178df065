// Package setup builds the inside of a sandbox from the guest's own process, without an OCI runtime. The host starts
// the guest in new namespaces and sends it a Config; the guest mounts the root file system, makes it its root, gives up
// the host's file systems and all rights that the sandbox does not have, and then serves the host, all in one process.
//
// Sources of mounts are opened while the host's files are still there. Targets are looked up after the sandbox's root
// file system has become the root and the host's is gone, so no link in an image leads out of the sandbox.
package setup

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// Config describes the sandbox to build. The host sends it to the guest.
type Config struct {
	// Root describes the root file system. It is nil in a process that joins an existing sandbox: then only User,
	// Env, Capabilities and Seccomp apply.
	Root *Root `json:"root,omitempty"`
	// Hostname is the sandbox's host name.
	Hostname string `json:"hostname,omitempty"`
	// Hosts are more lines of /etc/hosts, without their ends.
	Hosts []string `json:"hosts,omitempty"`
	// Resolver is the name server in /etc/resolv.conf. The zero value means none.
	Resolver netip.Addr `json:"resolver,omitzero"`
	// Prohibited are the IPv4 destinations that the kernel refuses to send to, each one once.
	Prohibited []netip.Prefix `json:"prohibited,omitempty"`
	// Held says that descriptor 3 was passed on purpose. The process keeps it until it ends.
	Held bool `json:"held,omitempty"`
	// User is the user that serves: "name" or "id", optionally with ":group". Empty means root.
	User string `json:"user,omitempty"`
	// Dir is the working directory, which is made if it is missing. Volumes are further directories to make.
	Dir     string   `json:"dir,omitempty"`
	Volumes []string `json:"volumes,omitempty"`
	// Env is the environment of commands, each "name=value", as bytes. HOME and PATH are added if they are missing.
	Env [][]byte `json:"env,omitempty"`
	// Capabilities is the set of capabilities that root in the sandbox has, one bit for each.
	Capabilities uint64 `json:"capabilities"`
	// Seccomp is the filter of system calls, as instructions of classic BPF (struct sock_filter). Empty allows all.
	Seccomp []byte `json:"seccomp,omitempty"`
	// UserNamespace reports whether the process is root only in a user namespace. Then Root.Scratch must be a path that
	// every user may enter.
	UserNamespace bool `json:"user_namespace,omitempty"`
	// OneUser reports whether root is the only user and group of the process's user namespace, which has no other ids.
	OneUser bool `json:"one_user,omitempty"`
	// Tasks is how many files of control groups the host sends after the Config, before anything else. See Run.
	Tasks int `json:"tasks,omitempty"`
	// Processes limits the processes and threads of the user in its user namespace. 0 is no limit.
	Processes uint64 `json:"processes,omitempty"`
}

// Root describes a sandbox's file systems.
type Root struct {
	// Layers are the host's folders with the image's layers, lowest first.
	Layers []string `json:"layers"`
	// Scratch is an empty folder of the host. The writable layer is mounted there, invisible to other processes.
	Scratch string `json:"scratch"`
	// Size is the size of the writable layer in bytes. It is in memory unless OnDisk is set: then the host sends a mount of it
	// after the Config, the first one.
	Size   int64 `json:"size"`
	OnDisk bool  `json:"on_disk,omitempty"`
	// Guest is the host's folder with the guest's program. It is mounted read-only at GuestDir.
	Guest string `json:"guest"`
	// Cgroups are the host's folders of the sandbox's control groups. Their names in /sys/fs/cgroup are the keys, with
	// version 2 the empty string. Then the others are mounted in that group.
	Cgroups map[string]string `json:"cgroups,omitempty"`
	Mounts  []Mount           `json:"mounts,omitempty"`
	// Passed reports whether the host sends mounts of Layers, Guest and Mounts after the Config (see Root.Pass): the
	// process may not access the files.
	Passed bool `json:"passed,omitempty"`
	// Sockets is the host's folder for sockets of guests, which is mounted read-only at SocketDir. Empty means none.
	Sockets string `json:"sockets,omitempty"`

	// Volumes are mounts that the host sends after the Config, the last ones, unless this process makes them. Tmpfs are
	// mounted too.
	Volumes []Volume `json:"volumes,omitempty"`
	Tmpfs   []Tmpfs  `json:"tmpfs,omitempty"`
	// Sizes are the sizes in bytes of file systems that this process makes in memory, for its own Volumes and those of other
	// sandboxes. Shares are the mounts that are needed, as indexes of Sizes. The first ones are for Volumes; the process sends
	// the others after its Reply.
	Sizes  []int64 `json:"sizes,omitempty"`
	Shares []int   `json:"shares,omitempty"`
	// Shm is the size of /dev/shm in bytes. 0 means ShmSize.
	Shm int64 `json:"shm,omitempty"`
	// ReadOnly makes the root file system read-only, but not what is mounted in it.
	ReadOnly bool `json:"read_only,omitempty"`

	userNamespace bool     // as Config.UserNamespace
	attached      []string // folders with the layers, lowest first; set by overlay
	copied        bool     // the layers are copied, because the kernel does not mount the overlay
	undivided     bool     // as Reply.Undivided; set by leaveCgroupNamespace
	shared        []int    // descriptors of mounts for other sandboxes; set by takeVolumes
	disk          mount    // the writable layer, with OnDisk; set by takeDisk
}

// A mount is made detached, as a file descriptor, and attached to its place later.
type mount struct {
	name string // for errors
	fd   int
}

// Mount is a path of the host that is visible in the sandbox.
type Mount struct {
	Host      string `json:"host"`      // without links
	Container string `json:"container"` // absolute and clean
	Writable  bool   `json:"writable,omitempty"`
	Device    uint64 `json:"device"` // of the file that was checked, as returned by stat(2), like Inode
	Inode     uint64 `json:"inode"`
}

// Volume is a volume that several sandboxes may mount. It gets the owner and mode of the image's folder at its place.
type Volume struct {
	Container string `json:"container"` // absolute and clean
	Writable  bool   `json:"writable,omitempty"`
}

// Tmpfs is a file system in memory. An option is "name=value".
type Tmpfs struct {
	Container string   `json:"container"` // absolute and clean
	Options   []string `json:"options,omitempty"`
	Exec      bool     `json:"exec,omitempty"`
	ReadOnly  bool     `json:"read_only,omitempty"`
}

// MountOptions returns all options in the form of mount(8).
func (t Tmpfs) MountOptions() []string {
	options := append([]string{"nosuid", "nodev"}, t.Options...)
	if !t.Exec {
		options = append(options, "noexec")
	}
	if t.ReadOnly {
		options = append(options, "ro")
	}
	return options
}

// heldFD is the descriptor of Config.Held.
const heldFD = 3

// GuestDir is the mount point of the guest's folder in the sandbox. Guest is the program's name in it. SocketDir is the
// mount point, which must exist in that folder, of the folder for sockets.
const (
	GuestDir  = "/.fumehood"
	Guest     = "guest"
	SocketDir = GuestDir + "/host"
)

// Reserved reports whether nothing may be mounted at a path of the sandbox, which is absolute, clean and without links of the
// image. /dev/fd leads to /proc.
func Reserved(at string) bool {
	for _, dir := range []string{GuestDir, "/proc", "/sys", "/dev/fd"} {
		if at == "/" || at == dir || strings.HasPrefix(at, dir+"/") {
			return true
		}
	}
	return false
}

// Reply is the guest's answer to a Config, sent before it serves.
type Reply struct {
	// Step is the step that failed. It is empty if all succeeded.
	Step  string `json:"step,omitempty"`
	Error string `json:"error,omitempty"` // what failed
	// Copied reports that the kernel cannot mount the layers as an overlay, so they were copied into the writable layer.
	Copied bool `json:"copied,omitempty"`
	// Undivided reports that threads cannot move to the group for programs, so all processes stay in the sandbox's.
	Undivided bool `json:"undivided,omitempty"`
	// Fault is the party that can correct it.
	Fault Fault `json:"fault,omitempty"`
}

// Fault is who has to correct the cause of a failed set-up.
type Fault string

// Faults of a failed set-up. Other errors are the machine's.
const (
	FaultUser   Fault = "user"   // there is no such user in the image
	FaultImage  Fault = "image"  // the image cannot be used
	FaultMount  Fault = "mount"  // a mount's source or target cannot be used
	FaultIDs    Fault = "ids"    // the user namespace has no other user than root
	FaultDenied Fault = "denied" // the machine, or a container on it, denies something
	FaultFill   Fault = "fill"   // the image has files where a volume is mounted, which are not copied
)

// maxMessage bounds a Config and a Reply in bytes.
const maxMessage = 8 << 20

// Send writes a message: its length in 4 bytes, big endian, and the value as JSON.
func Send(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return fmt.Errorf("message of %d bytes, the limit is %d", len(text), maxMessage)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)) //nolint:gosec // see above
	return err
}

// Receive reads a message that Send wrote.
func Receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return fmt.Errorf("message of %d bytes, the limit is %d", n, maxMessage)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
