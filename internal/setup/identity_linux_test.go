package setup

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConfineThread_personality(t *testing.T) {
	const query, noRandomize = 0xffffffff, 0x0040000 // personality(2)
	done := make(chan uintptr)
	go func() {
		defer close(done)
		runtime.LockOSThread() // without the reverse: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, noRandomize, 0, 0); errno != 0 {
			t.Error(errno)
		}
		if err := ConfineThread(^uint64(0)); err != nil {
			t.Error(err)
		}
		now, _, _ := unix.RawSyscall(unix.SYS_PERSONALITY, query, 0, 0)
		done <- now
	}()
	if now := <-done; now != 0 {
		t.Errorf("got %#x", now)
	}
}
