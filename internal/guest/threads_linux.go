package guest

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// The directions of move, as offsets in tasks.
const (
	toCode = iota
	toOwn
)

// move moves this thread, of which processes inherit the control groups, to those of programs or back. It takes some
// microseconds. To move another thread, the kernel would wait for all processors.
func (w *worker) move(to int) error {
	for i := to; i < len(w.tasks); i += 2 {
		if n, err := wire.RawWrite(w.tasks[i], []byte("0")); n != 1 {
			return err
		}
	}
	return nil
}

// threadsFolder lists the threads of this process.
const threadsFolder = "/proc/self/task"

// threads returns the number of threads of this process, if move moves any; otherwise 0. It takes less than a microsecond.
func (w *worker) threads() uint64 {
	if len(w.tasks) == 0 {
		return 0
	}
	var folder unix.Stat_t
	_, _, _ = unix.RawSyscall(unix.SYS_FSTAT, uintptr(w.list), uintptr(unsafe.Pointer(&folder)), 0)
	return uint64(folder.Nlink)
}

// moveBack is move to the worker's own groups. before is what threads returned before the move to those of programs. A thread that
// the runtime has started since then inherited them, and moves too.
func (w *worker) moveBack(before uint64) error {
	if err := w.move(toOwn); err != nil {
		return err
	}
	for now := w.threads(); now != before; now = w.threads() { // one that has not moved yet may start another one
		before = now
		all, err := os.ReadDir(threadsFolder)
		if err != nil {
			return err
		}
		for _, thread := range all {
			for i := toOwn; i < len(w.tasks); i += 2 {
				if _, err := wire.RawWrite(w.tasks[i], []byte(thread.Name())); err != nil && !errors.Is(err, unix.ESRCH) { // has ended
					return err
				}
			}
		}
	}
	return nil
}
