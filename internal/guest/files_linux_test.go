package guest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/wire"
)

// TestUncached_diskFull writes to a FUSE file system whose disk becomes full in the middle of a write. With O_DIRECT
// such a write fails with EIO.
func TestUncached_diskFull(t *testing.T) {
	program, err := exec.LookPath("fuse-overlayfs")
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("needs root and fuse-overlayfs: %v", err)
	}
	disk, merged := t.TempDir(), t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(merged, 0), unix.Unmount(disk, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	var dirs []string
	for _, name := range []string{"lower", "upper", "work"} {
		dirs = append(dirs, filepath.Join(disk, name))
		if err := os.Mkdir(dirs[len(dirs)-1], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	options := "lowerdir=" + dirs[0] + ",upperdir=" + dirs[1] + ",workdir=" + dirs[2]
	if out, err := exec.CommandContext(t.Context(), program, "-o", options, merged).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	if err := os.WriteFile(filepath.Join(merged, "first"), make([]byte, 1<<20+4097), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(merged, "second"))
	if err != nil {
		t.Fatal(err)
	}
	w := fastWriter(f)
	if _, ok := w.(*uncached); !ok {
		t.Fatal("the file is written through the cache")
	}
	for range 8 {
		if _, err = w.Write(make([]byte, writeSize)); err != nil {
			break
		}
	}
	if err = errors.Join(err, f.Close()); !errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EIO) {
		t.Errorf("8 MiB on 7: %v", err)
	}
}

func TestFileUpload_emptyArchive(t *testing.T) {
	host, opened := hostAndStreams(t)
	defer time.AfterFunc(time.Minute, host.Close).Stop() // unblocks waiting calls
	s, err := host.Open([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	peer := <-opened
	extracted := make(chan error, 1)
	go func() { extracted <- fileUpload(peer, t.TempDir()) }()
	if err := s.SendEnd(wire.Stdin); err != nil {
		t.Error(err)
	}
	for range 2 { // before the content and after it
		if ev, err := s.Receive(); err != nil || string(ev.Payload) != "{}" {
			t.Errorf("got %q, %v", ev.Payload, err)
		}
	}
	if err := <-extracted; err != nil {
		t.Error(err)
	}
}

// Large content uses shared memory on a socket. It arrives complete, and a broken transfer leaves no atomic file.
func TestFile_large(t *testing.T) {
	want := make([]byte, 5*wire.ShareFrom+123)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want) // never fails
	path := filepath.Join(t.TempDir(), "f")
	begin := func(req *wire.File) *wire.Stream {
		t.Helper()
		host, opened := hostAndStreams(t)
		s, err := host.Open([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		peer := <-opened
		go func() {
			defer peer.Close()
			new(guest).file(peer, req)
		}()
		if ev, err := s.Receive(); err != nil || ev.Type != wire.Message || strings.Contains(string(ev.Payload), "failed") {
			t.Fatalf("got %q, %v", ev.Payload, err)
		}
		return s
	}
	write := &wire.File{Op: wire.Write, Path: []byte(path), Mode: 0o600, Atomic: true}

	s := begin(write)
	if n, rerr, serr := s.SendFrom(wire.Stdin, bytes.NewReader(want), int64(len(want))); n != int64(len(want)) || rerr != nil || serr != nil {
		t.Errorf("sent %d bytes, %v, %v", n, rerr, serr)
	}
	s.Close() // without the end of the content
	eventuallyEmpty(t, filepath.Dir(path))

	s = begin(write)
	if _, rerr, serr := s.SendFrom(wire.Stdin, bytes.NewReader(want), -1); rerr != nil || serr != nil || s.SendEnd(wire.Stdin) != nil {
		t.Errorf("got %v, %v", rerr, serr)
	}
	if ev, err := s.Receive(); err != nil || string(ev.Payload) != "{}" {
		t.Errorf("got %q, %v", ev.Payload, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes written, %v", len(got), err)
	}

	const offset, length = 1001, 3*wire.ShareFrom + 17
	s = begin(&wire.File{Op: wire.Read, Path: []byte(path), Offset: offset, Length: length})
	s.Share(wire.Stdout)
	got, err := io.ReadAll(&wire.Content{Stream: s, Channel: wire.Stdout, Wrong: func(_ wire.Event, err error) error { return cmp.Or(err, errNoContent) }})
	if err != nil || !bytes.Equal(got, want[offset:offset+length]) {
		t.Errorf("%d bytes read, %v", len(got), err)
	}
}

// eventuallyEmpty waits until a directory is empty.
func eventuallyEmpty(t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		left, err := os.ReadDir(dir)
		if err != nil || time.Now().After(end) {
			t.Fatalf("left: %v, %v", left, err)
		}
		if len(left) == 0 {
			return
		}
	}
}

// A file that becomes shorter while it is read is not a failure of the guest.
func TestFileError_changed(t *testing.T) {
	t.Parallel()
	f := fileError(fmt.Errorf("%w: /f has become shorter", archive.ErrChanged))
	if f.Errno != int(unix.EBUSY) || !strings.Contains(f.Text, "shorter") {
		t.Errorf("got %+v", f)
	}
}
