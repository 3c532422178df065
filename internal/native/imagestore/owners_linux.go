package imagestore

import (
	"archive/tar"
	"context"
	"errors"
	"io/fs"

	"github.com/fumehood/fumehood/internal/owner"
)

// Owners sets owners of files that this process's user may not set. It is another process, which has the rights.
type Owners interface {
	// Set sets the owners of files in a folder. The folder itself keeps its owner.
	Set(ctx context.Context, dir string, files []Owned) error
	// Remove removes a folder with files of all owners.
	Remove(ctx context.Context, dir string) error
}

// Owned is a file with its owner.
type Owned struct {
	Name     string // relative to the folder, without links
	UID, GID int    // 0 to 65535
	Mode     int64  // as in chmod(2); -1 for links
}

// nobody is the owner of a file whose owner does not exist in sandboxes, as the kernel shows it there.
const nobody = 65534

// owners are the files of a layer that do not get their owner, or mode, when they are unpacked.
type owners struct {
	files []Owned // in the order of the layer; those without a name were replaced
	at    map[string]int
}

// note records what an entry says about a file. mode is that before it was changed.
func (o *owners) note(name string, h *tar.Header, mode int64) {
	o.forget(name)
	f := Owned{Name: name, UID: h.Uid, GID: h.Gid, Mode: mode & 0o7777}
	if f.UID == 0 && f.GID == 0 && mode == h.Mode {
		return
	}
	for _, id := range []*int{&f.UID, &f.GID} {
		if *id > 0xffff {
			*id = nobody
		}
	}
	if h.Typeflag == tar.TypeSymlink {
		f.Mode = -1
	}
	o.at[name] = len(o.files)
	o.files = append(o.files, f)
}

// forget drops a file that was replaced.
func (o *owners) forget(name string) {
	if i, ok := o.at[name]; ok {
		o.files[i].Name = ""
		delete(o.at, name)
	}
}

// removeAll removes a folder, whatever its modes, even if it has files of other users of sandboxes.
func (s *Store) removeAll(ctx context.Context, dir string) error {
	err := owner.RemoveFolder(dir)
	if errors.Is(err, fs.ErrPermission) && s.opts.Owners != nil {
		return s.opts.Owners.Remove(context.WithoutCancel(ctx), dir)
	}
	return err
}
