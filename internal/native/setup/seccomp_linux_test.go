package setup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	compiler "github.com/fumehood/fumehood/internal/native/filter"
)

// filtered is the environment variable of the process that installs a filter.
const filtered = "FUMEHOOD_TEST_FILTERED"

func TestFilter_Threads(t *testing.T) {
	if os.Getenv(filtered) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFilter_Threads$", "-test.count=1")
		cmd.Env = append(os.Environ(), filtered+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	program, err := compiler.Compile(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 18}]}`, runtime.GOARCH, nil, compiler.Kernel{})
	if err != nil {
		t.Fatal(err)
	}
	ask, answer := make(chan bool), make(chan unix.Errno)
	go func() { // on a thread that exists before the filter
		runtime.LockOSThread()
		for range ask {
			_, _, errno := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
			answer <- errno
		}
	}()
	ask <- true
	if errno := <-answer; errno != 0 {
		t.Fatal("before:", errno)
	}
	runtime.LockOSThread() // the filter takes no_new_privs to the other threads too
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := filter(program); err != nil {
		t.Fatal(err)
	}
	ask <- true
	if errno := <-answer; errno != unix.EXDEV {
		t.Error("another thread:", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); errno != unix.EXDEV {
		t.Error("this thread:", errno)
	}
}

func TestFilter_Invalid(t *testing.T) {
	for _, size := range []int{0, 7, 12, 8 * 4097} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			if err := filter(make([]byte, size)); err == nil || !strings.Contains(err.Error(), "bytes") {
				t.Errorf("got %v", err)
			}
		})
	}
	// It ends without a return.
	if err := filter(make([]byte, 8)); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EACCES) {
		t.Errorf("got %v", err)
	}
}
