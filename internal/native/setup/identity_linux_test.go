package setup

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// reset calls check on a thread that prepare has changed and ResetThread has reset.
func reset(t *testing.T, prepare, check func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without the reverse: the thread ends with the goroutine
		prepare()
		if err := ResetThread(); err != nil {
			t.Error(err)
		}
		check()
	}()
	<-done
}

func TestResetThread_personality(t *testing.T) {
	const query, noRandomize = 0xffffffff, 0x0040000 // personality(2)
	reset(t, func() {
		if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, noRandomize, 0, 0); errno != 0 {
			t.Error(errno)
		}
	}, func() {
		if now, _, _ := unix.RawSyscall(unix.SYS_PERSONALITY, query, 0, 0); now != 0 {
			t.Errorf("got %#x", now)
		}
	})
}

func TestResetThread_scheduling(t *testing.T) {
	for name, before := range map[string]unix.SchedAttr{
		"real time":       {Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1},
		"higher priority": {Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: -5},
		"lower priority":  {Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH, Nice: 3},
	} {
		t.Run(name, func(t *testing.T) {
			denied := false
			reset(t, func() {
				err := unix.SchedSetAttr(0, &before, 0)
				denied = err == unix.EPERM
				if err != nil && !denied {
					t.Error(err)
				}
			}, func() {
				want := before
				if want.Nice < 3 {
					want = unix.SchedAttr{Policy: unix.SCHED_NORMAL}
				}
				now, err := unix.SchedGetAttr(0, 0)
				if err != nil || !denied && (now.Policy != want.Policy || now.Priority != 0 || now.Nice != want.Nice) {
					t.Errorf("%+v, %v", now, err)
				}
			})
			if denied {
				t.Skip("this user may not set that")
			}
		})
	}
}

func TestResetThread_ioPriority(t *testing.T) {
	const process, realTime = 1, 1 << 13 // ioprio_set(2)
	denied := false
	reset(t, func() {
		_, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_SET, process, 0, realTime)
		denied = errno == unix.EPERM
		if errno != 0 && !denied {
			t.Error(errno)
		}
	}, func() {
		if now, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, process, 0, 0); errno != 0 || now>>13 == 1 {
			t.Errorf("%#x, %v", now, errno)
		}
	})
	if denied {
		t.Skip("this user may not set that")
	}
}
