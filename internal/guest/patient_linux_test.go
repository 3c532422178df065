package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/wire"
)

// unwatched returns our side of a non-blocking pipe that is not in Go's poller, as when the kernel refuses to add it.
func unwatched(t *testing.T, fd int) (parent *patient, child *os.File) {
	t.Helper()
	their, our, err := pipe(fd)
	if err != nil {
		t.Fatal(err)
	}
	child = os.NewFile(uintptr(their), "theirs")
	if err := unix.SetNonblock(our, false); err != nil { // otherwise Go adds it to its poller
		t.Fatal(err)
	}
	parent = newPatient(our, "ours")
	if err := unix.SetNonblock(our, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Close()
		_ = parent.Close()
	})
	return parent, child
}

func TestPatient_unwatchedOutput(t *testing.T) {
	parent, child := unwatched(t, 1)
	c := &command{req: &wire.Exec{}, tails: []*ring.Tail{ring.NewTail(100)}}
	o := &outlet{c: c, fd: -1, file: parent}
	var pump sync.WaitGroup
	pump.Go(o.pump)
	want := ""
	for _, piece := range []string{"one ", "two ", "three "} {
		want += piece
		if _, err := child.WriteString(piece); err != nil {
			t.Fatal(err)
		}
		until(t, "the output is read", func() bool {
			_, total := c.tails[0].Bytes()
			return total == int64(len(want))
		})
	}
	o.file.readUntil(time.Now().Add(drainWithin)) // a child holds the other side open
	if _, err := child.WriteString("four"); err != nil {
		t.Fatal(err)
	}
	pump.Wait()
	if got, _ := c.tails[0].Bytes(); string(got) != want+"four" || o.atEnd {
		t.Errorf("got %q, at its end: %v", got, o.atEnd)
	}
}

func TestPatient_unwatchedInput(t *testing.T) {
	parent, child := unwatched(t, 0)
	input := bytes.Repeat([]byte("input "), 100_000) // more than a pipe holds
	written := make(chan error)
	go func() {
		_, err := parent.Write(input)
		written <- errors.Join(err, parent.Close())
	}()
	got, err := io.ReadAll(child)
	if err := errors.Join(err, <-written); err != nil || !bytes.Equal(got, input) {
		t.Errorf("%d of %d bytes, %v", len(got), len(input), err)
	}
}
