package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const otherUID = 4321 // the id of the user for whom directories are made

// ownedTree returns a folder that only root can change, with the folders user, of another user, and secret, of root.
func ownedTree(t *testing.T) (top, user, secret string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	top, err := os.MkdirTemp("/run", "fumehood-owned-") // nobody else may write above it, unlike /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	user, secret = filepath.Join(top, "user"), filepath.Join(top, "secret")
	err = errors.Join(os.Mkdir(user, 0o755), os.Mkdir(secret, 0o755), os.Chown(user, otherUID, otherUID))
	if err != nil {
		t.Fatal(err)
	}
	return top, user, secret
}

func wantOwner(t *testing.T, path string, want int) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
		return
	}
	if uid, gid := OwnerOf(info); uid != want || gid != want {
		t.Errorf("%s belongs to %d:%d, not %d", path, uid, gid, want)
	}
}

func TestMkdir_owner(t *testing.T) {
	top, user, _ := ownedTree(t)
	for path, parents := range map[string]bool{top + "/one": false, top + "/a/b/./c/": true, user + "/../d": false, user + "/e/f": true} {
		if err := Mkdir(path, 0o750|fs.ModeSetgid, parents, "4321:4321"); err != nil {
			t.Error(path, err)
		}
	}
	for _, path := range []string{"one", "a", "a/b", "a/b/c", "d", "user/e", "user/e/f"} {
		wantOwner(t, filepath.Join(top, path), otherUID)
	}
	if info, err := os.Stat(top + "/a"); err != nil || info.Mode().Perm() != 0o755 {
		t.Error(info, err)
	}
	if info, err := os.Stat(top + "/a/b/c"); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o750 {
		t.Error(info.Mode(), err)
	}
	wantOwner(t, top, 0)
	for path, want := range map[string]error{top + "/one": syscall.EEXIST, top + "/no/no": syscall.ENOENT} {
		if err := Mkdir(path, 0o755, false, "4321:4321"); !errors.Is(err, want) {
			t.Error(path, err)
		}
	}
	if err := Mkdir(top+"/x", 0o755, true, "no-such-user"); !errors.Is(err, ErrNoUser) {
		t.Error(err)
	}
}

// An empty folder of root at the path is given to the owner, and none above it, and none with content.
func TestMkdir_owner_existing(t *testing.T) {
	top, user, secret := ownedTree(t)
	work := filepath.Join(user, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Mkdir(work, 0o755, true, "4321:4321"); err != nil {
		t.Error(err)
	}
	wantOwner(t, work, otherUID)
	if info, err := os.Stat(work); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	if err := Mkdir(secret+"/below", 0o755, true, "4321:4321"); err != nil {
		t.Error(err)
	}
	wantOwner(t, secret, 0)
	write(t, filepath.Join(top, "file"), "x")
	if err := Mkdir(top, 0o755, true, "4321:4321"); err != nil {
		t.Error(err)
	}
	wantOwner(t, top, 0)
	if err := Mkdir(top+"/file/x", 0o755, true, "4321:4321"); !errors.Is(err, syscall.ENOTDIR) {
		t.Error(err)
	}
}

// Root makes and gives away nothing through a link that the user could have made, but follows its own.
func TestMkdir_owner_links(t *testing.T) {
	top, user, secret := ownedTree(t)
	open := filepath.Join(top, "open") // all users may write here
	err := errors.Join(
		os.Mkdir(open, 0o755), os.Chmod(open, 0o1777),
		os.Symlink(secret, user+"/link"), os.Lchown(user+"/link", otherUID, otherUID),
		os.Symlink(secret, user+"/roots"), // the user can put another link of root here
		os.Symlink("secret", top+"/theirs"), os.Lchown(top+"/theirs", otherUID, otherUID),
		os.Symlink(secret, open+"/link"),
		os.Symlink("secret/../secret", top+"/link"), os.Symlink(top+"/link", secret+"/again"),
		os.Symlink("loop", top+"/loop"),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{user + "/link", user + "/roots", top + "/theirs", open + "/link"} {
		if err := Mkdir(path, 0o755, true, "4321:4321"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", path, err)
		}
		if err := Mkdir(path+"/below", 0o755, true, "4321:4321"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("below %s: %v", path, err)
		}
		_, err := Create(path+"/dir/file", Options{Mode: 0o644, UID: otherUID, GID: otherUID})
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("write below %s: %v", path, err)
		}
	}
	wantOwner(t, secret, 0)
	if in, err := os.ReadDir(secret); err != nil || len(in) != 1 {
		t.Error(in, err)
	}
	if err := Mkdir(top+"/link/again/new", 0o755, true, "4321:4321"); err != nil {
		t.Error(err)
	}
	wantOwner(t, secret+"/new", otherUID)
	if err := Mkdir(top+"/loop/new", 0o755, true, "4321:4321"); !errors.Is(err, syscall.ELOOP) {
		t.Error(err)
	}
}
