package fumehood

import (
	"io/fs"
	"time"
)

// FileInfo describes a file in a service.
type FileInfo struct {
	Name       string      // the base name
	Size       int64       // bytes; 0 if not a regular file
	Mode       fs.FileMode // type and permissions
	ModTime    time.Time
	LinkTarget string // target of a symbolic link; empty for other files
	UID, GID   int    // of the owner; -1 if unknown
}

// WalkEntry describes a file visited by Walk.
type WalkEntry struct {
	Path string // relative to the root, clean, with slashes; "." for the root itself
	FileInfo
}

// ReadOptions are the options of ReadFile. The zero value reads up to MaxReadFile bytes.
type ReadOptions struct {
	Limit int64 // maximum size of the file in bytes; 0 means MaxReadFile
}

// WriteOptions are the options of WriteFile and WriteFrom. The zero value creates missing parents and gives a new
// file mode 0644.
type WriteOptions struct {
	Mode fs.FileMode // permission bits of the file; 0 means 0644
	// Owner is the owner of the file and of missing parents that are created, as in Cmd.User. Without a group, the
	// user's own group is used. If empty, a new file belongs to the writing user and an existing file keeps its owner.
	Owner string
	// Atomic writes a new file in the same directory and renames it to the path. Concurrent readers get the old
	// content or the new, never a part, and a failed write changes nothing. It requires write permission for the
	// directory, not for the file. The file is a new one: it belongs to the writer unless Owner is set, and hard
	// links keep the old content. A symbolic link at the path is followed, as without Atomic.
	Atomic bool
	// ModTime is when the file was last changed, as for a copy. The zero value means now.
	ModTime time.Time
}

// MkdirOptions are the options of Mkdir.
type MkdirOptions struct {
	Mode fs.FileMode // permission, set-id and sticky bits; 0 means 0755
	// Parents creates missing parent directories with mode 0755. An existing directory is not an error, whatever
	// its mode.
	Parents bool
	// Owner is the owner of the directories that are created, as in WriteOptions. With Parents, an existing empty
	// directory of root at the path is given to it too. Programs of the sandbox cannot redirect the change: a link is
	// followed only if it is root's and only root can write where it is. Any other is an ErrPermission.
	Owner string
}

// RemoveOptions are the options of Remove.
type RemoveOptions struct {
	Recursive bool // remove a directory with everything in it
}
