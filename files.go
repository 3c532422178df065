package fumehood

import (
	"io/fs"
	"time"
)

// FileInfo describes a file in a service.
type FileInfo struct {
	Name       string      // the base name
	Size       int64       // bytes; 0 for what is no regular file
	Mode       fs.FileMode // type and permissions
	ModTime    time.Time
	LinkTarget string // where a link points to; empty for all else
	UID, GID   int    // of the owner; -1 where they are not known
}

// WalkEntry describes a file that Walk met.
type WalkEntry struct {
	Path string // relative to the root, clean, with slashes; "." for the root itself
	FileInfo
}

// ReadOptions says how a file is read. The zero value reads up to MaxReadFile bytes.
type ReadOptions struct {
	Limit int64 // the largest file that is read, in bytes; 0 means MaxReadFile
}

// WriteOptions says how a file is written. The zero value makes missing parents and gives a new file
// mode 0644.
type WriteOptions struct {
	Mode fs.FileMode // permission bits of the file; 0 means 0644
	// Owner is who the file is to belong to, as in Cmd.User; without a group, the user's own. Empty gives
	// a new file to the user who writes it, and leaves another its owner.
	Owner string
	// Atomic writes a new file beside the path and then puts it there: who reads meanwhile gets the old
	// content or the new, never a part, and a write that fails changes nothing. It takes the right to
	// write to the directory, not to the file. The file is a new one: it is the writer's unless Owner says
	// otherwise, and hard links keep the old content. A link at the path is followed, as without Atomic.
	Atomic bool
}

// MkdirOptions says how a directory is made.
type MkdirOptions struct {
	Mode fs.FileMode // permission, set-id and sticky bits; 0 means 0755
	// Parents makes the directories above it that are missing, with mode 0755, and takes a directory that
	// is there, whatever its mode, for made.
	Parents bool
}

// RemoveOptions says what is removed.
type RemoveOptions struct {
	Recursive bool // a directory with all that is in it
}
