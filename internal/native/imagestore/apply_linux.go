package imagestore

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/archive"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
)

// How layers mark what lower layers lose.
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = ".wh..wh."
	opaqueMarker   = ".wh..wh..opq"
)

// opaqueAttrs are the attributes of a folder that hides the folders of lower layers. In a user namespace overlayfs reads
// the second one.
var opaqueAttrs = []string{"trusted.overlay.opaque", "user.overlay.opaque"}

// maxAttrs is the maximum size of a file's extended attributes, in bytes. ext4 holds no more, and reports a full disk.
const maxAttrs = 3500

// attrOverhead is about what ext4 needs for an attribute besides its name and value, in bytes.
const attrOverhead = 24

// paxAttr begins the names of tar records that are extended attributes.
const paxAttr = "SCHILY.xattr."

// apply unpacks the tar stream of a layer into a folder, in the form that overlayfs expects of a lower layer. Owners,
// modes and whiteouts need the rights of root, without OneOwner. containerd's code resolves all names within the folder, whatever links
// the layer has; this code limits and changes what it sees. It returns the files that do not have their owner or mode yet.
func (s *Store) apply(ctx context.Context, dir string, layer io.Reader, b *budget) ([]Owned, error) {
	a := &applier{dir: dir, budget: b, oneOwner: s.opts.OneOwner, devices: map[string]bool{}, notes: map[string]*pending{}}
	opts := []archive.ApplyOpt{archive.WithFilter(a.accept), archive.WithConvertWhiteout(a.convert)}
	if a.oneOwner {
		opts = append(opts, archive.WithNoSameOwner())
	}
	if s.opts.Owners != nil {
		a.owners = &owners{at: map[string]int{}}
	}
	if _, err := archive.Apply(ctx, dir, layer, opts...); err != nil {
		return nil, err
	}
	if len(a.devices) > 0 {
		s.opts.Logger.Info("devices of an image are left out", "layer", filepath.Base(dir), "devices", len(a.devices))
	}
	if err := a.finish(); err != nil || a.owners == nil {
		return nil, err
	}
	return slices.DeleteFunc(a.owners.files, func(f Owned) bool { return f.Name == "" }), nil
}

// applier is the state of unpacking a layer.
type applier struct {
	dir      string
	budget   *budget
	root     *tar.Header // of the layer's top folder; nil if there was none
	oneOwner bool
	owners   *owners         // nil if owners need not be set afterwards
	mode     int64           // of the current entry, before it was changed
	devices  map[string]bool // the names of devices, which are left out
	notes    map[string]*pending
}

// accept checks an entry, and removes from it what is not unpacked. It is false for entries that are left out. Names
// are clean.
func (a *applier) accept(h *tar.Header) (bool, error) {
	const maxID = 1<<32 - 2 // -1 would leave the owner as it is
	if err := a.budget.entry(len(h.Name)+len(h.Linkname), h.Size); err != nil {
		return false, err
	}
	h.Name = strings.TrimLeft(h.Name, "/")
	if h.Name == ".." || strings.HasPrefix(h.Name, "../") {
		return false, fmt.Errorf("entry %q is outside of the layer", h.Name)
	}
	if min(h.Uid, h.Gid) < 0 || max(int64(h.Uid), int64(h.Gid)) > maxID {
		return false, fmt.Errorf("entry %q has the owner %d:%d", h.Name, h.Uid, h.Gid)
	}
	if err := keepAttrs(h); err != nil {
		return false, err
	}
	a.mode = h.Mode
	if a.oneOwner {
		a.ownable(h)
	}
	h.Uname, h.Gname = "", "" // folders' headers are kept until the end
	switch base := path.Base(h.Name); {
	case h.Name == "." || h.Name == "":
		if h.Typeflag == tar.TypeDir {
			a.root = h
		}
		return false, nil
	case base == opaqueMarker:
		return true, nil
	case strings.HasPrefix(base, metaPrefix), strings.HasPrefix(h.Name, metaPrefix): // of AUFS
		return false, nil
	case base == whiteoutPrefix, base == whiteoutPrefix+".", base == whiteoutPrefix+"..":
		return false, fmt.Errorf("whiteout %q hides no file", h.Name)
	}
	return a.acceptType(h)
}

// ownable changes an entry so that a user without rights can unpack and remove it.
func (a *applier) ownable(h *tar.Header) {
	delete(h.PAXRecords, paxAttr+"security.capability")
	switch {
	case h.Typeflag == tar.TypeDir:
		h.Mode |= 0o700
	case len(h.PAXRecords) > 0:
		h.Mode |= 0o600 // the owner sets attributes
	}
}

// acceptType is accept for the entry's type.
func (a *applier) acceptType(h *tar.Header) (bool, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeFifo:
		delete(a.devices, h.Name)
		return true, nil
	case tar.TypeGNUSparse, tar.TypeCont: // the reader returns their whole content
		delete(a.devices, h.Name)
		h.Typeflag = tar.TypeReg
		return true, nil
	case tar.TypeLink:
		return !a.devices[path.Clean(strings.TrimLeft(h.Linkname, "/"))], nil
	case tar.TypeChar, tar.TypeBlock:
		a.devices[h.Name] = true
		return true, nil // it replaces an earlier entry
	case tar.TypeXGlobalHeader:
		return false, nil
	}
	return false, fmt.Errorf("entry %q has the unknown type %q", h.Name, h.Typeflag)
}

// keepAttrs removes all records of an entry but the extended attributes that a layer may set: capabilities, and those
// of users, except overlayfs's. Only files and folders can have attributes of users.
func keepAttrs(h *tar.Header) error {
	var kept map[string]string
	total, owned := 0, h.FileInfo().Mode().IsRegular() && h.Typeflag != tar.TypeLink || h.Typeflag == tar.TypeDir
	for key, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(key, paxAttr)
		user := strings.HasPrefix(attr, "user.") && !strings.HasPrefix(attr, "user.overlay.") && owned
		if !ok || attr != "security.capability" && !user {
			continue
		}
		if total += len(attr) + len(value) + attrOverhead; total > maxAttrs {
			return fail(fumehood.ErrLimit, "", "entry %.200q has more than %d bytes of extended attributes", h.Name, maxAttrs)
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	h.PAXRecords = kept
	return nil
}

// convert notes an entry that marks a loss. It is true for all other entries. file is the entry's path, whose folder exists
// and has no links.
//
// Whiteouts hide what lower layers have, whether they come before or after entries of the same name or below it. So they
// are made at the end.
func (a *applier) convert(h *tar.Header, file string) (bool, error) {
	dir, base := filepath.Split(file)
	switch {
	case base == opaqueMarker:
		a.hide(filepath.Clean(dir))
		return false, nil
	case strings.HasPrefix(base, whiteoutPrefix):
		a.hide(dir + strings.TrimPrefix(base, whiteoutPrefix))
		return false, nil
	}
	info, err := os.Lstat(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	isFolder := h.Typeflag == tar.TypeDir
	switch {
	case err != nil:
	case info.IsDir() && !isFolder:
		a.forget(file)
	case !info.IsDir() && isFolder:
		a.hide(file) // the replaced file hid a lower folder
	}
	if isDevice(h) {
		return false, os.RemoveAll(file) // an earlier entry
	}
	name, err := filepath.Rel(a.dir, file)
	if err != nil {
		return false, err
	}
	if isFolder {
		h.Name = name // links on the way may be replaced before its time is set
		note := a.noteFor(file)
		note.folders = append(note.folders, h)
	}
	if a.owners != nil {
		a.noteFor(file)
		a.owners.note(name, h, a.mode)
	}
	return true, nil
}

func isDevice(h *tar.Header) bool { return h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock }

// pending is what is left to do for a path when all entries are unpacked.
type pending struct {
	folders []*tar.Header // of a folder, whose time is set
	hidden  bool          // hides what lower layers have
	below   []string      // paths in it
}

// noteFor returns what is noted for a path.
func (a *applier) noteFor(file string) *pending {
	if note := a.notes[file]; note != nil {
		return note
	}
	note := &pending{}
	a.notes[file] = note
	if file != a.dir {
		in := a.noteFor(filepath.Dir(file))
		in.below = append(in.below, file)
	}
	return note
}

// hide notes that a path hides what lower layers have.
func (a *applier) hide(file string) { a.noteFor(file).hidden = true }

// forget drops what is noted for a folder, which another file replaces, and for everything below it.
func (a *applier) forget(folder string) {
	hidden := a.notes[folder] != nil && a.notes[folder].hidden
	for stack := []string{folder}; len(stack) > 0; {
		file := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		note := a.notes[file]
		if note == nil {
			continue
		}
		delete(a.notes, file)
		stack = append(stack, note.below...)
		for _, h := range note.folders {
			h.Name = "." // the top folder exists; its time is set later
		}
		if a.owners != nil {
			a.owners.forget(strings.TrimPrefix(file, a.dir+"/"))
		}
	}
	if hidden {
		a.hide(folder)
	}
}

// whiteouts makes the whiteouts. What the layer itself has at a path hides lower files as well, except for the content of
// lower folders.
func (a *applier) whiteouts() error {
	for file, note := range a.notes {
		if !note.hidden {
			continue
		}
		info, err := os.Lstat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err = nil; !a.opaqueAbove(file) { // else overlayfs would list the whiteout
				err = a.whiteout(file)
			}
		case err == nil && info.IsDir():
			err = a.setOpaque(file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// opaqueAbove reports whether a path is in a folder that hides what lower layers have.
func (a *applier) opaqueAbove(file string) bool {
	for file != a.dir {
		file = filepath.Dir(file)
		if note := a.notes[file]; note != nil && note.hidden {
			return true
		}
	}
	return false
}

// whiteout makes a whiteout. The folder keeps its time.
func (a *applier) whiteout(file string) error {
	dir := filepath.Dir(file)
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := unix.Mknod(file, unix.S_IFCHR, 0); err != nil {
		return whiteoutError(file, err)
	}
	return os.Chtimes(dir, time.Time{}, info.ModTime())
}

func (a *applier) setOpaque(dir string) error {
	names := opaqueAttrs
	if a.oneOwner {
		names = names[1:] // the first needs root
	}
	for _, name := range names {
		if err := unix.Lsetxattr(dir, name, []byte("y"), 0); err != nil {
			return whiteoutError(dir, err)
		}
	}
	return nil
}

// whiteoutError returns the error of a system call that made a whiteout or an opaque folder.
func whiteoutError(file string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		hint := "run as root, with XDG_CACHE_HOME on ext4, XFS, Btrfs or tmpfs"
		return fail(fumehood.ErrUnsupported, hint, "no whiteouts in the file system of %s: %w", filepath.Dir(file), err)
	}
	return err
}

// finish makes the whiteouts, and sets owner, mode and time of the layer's top folder.
func (a *applier) finish() error {
	if err := a.whiteouts(); err != nil {
		return err
	}
	if a.root == nil {
		return os.Chmod(a.dir, 0o755) // whatever the umask
	}
	mtime := a.root.ModTime
	if mtime.Before(time.Unix(0, 0)) || mtime.Year() > 9999 {
		mtime = time.Unix(0, 0)
	}
	if !a.oneOwner {
		if err := os.Chown(a.dir, a.root.Uid, a.root.Gid); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(a.dir, a.root.FileInfo().Mode()), os.Chtimes(a.dir, mtime, mtime))
}
