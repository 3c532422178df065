package setup

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InThread calls f in a thread that ends afterwards.
func InThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without the reverse: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			done <- InThread(f) // the first thread never ends; meanwhile it is not free for the goroutine
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}
