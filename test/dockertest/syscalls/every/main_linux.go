// Command every makes every system call with invalid arguments, and some with arguments that seccomp profiles check. It
// prints the result of each as a JSON object: the name of its error, "ok", or how the process ended. The argument names
// a file with a seccomp filter, which is installed first.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call with its first arguments; the others are 0.
type call struct {
	number uintptr
	args   [3]uintptr
}

// x32Bit is set in the numbers of the calls of x32.
const x32Bit = 1 << 30

// invalid is an invalid descriptor, address, flag, process and signal.
const invalid = ^uintptr(0)

// all returns the calls, except those that would end or double the process, wait, or flush the disks.
func all() []call {
	skipped := []uintptr{unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RT_SIGRETURN, unix.SYS_SYNC, unix.SYS_VHANGUP}
	skipped = append(skipped, skippedHere...)
	var calls []call
	for number := range uintptr(600) {
		if slices.Contains(skipped, number) {
			continue
		}
		calls = append(calls, call{number, [3]uintptr{invalid, invalid, invalid}})
		if runtime.GOARCH == "amd64" {
			calls = append(calls, call{number | x32Bit, [3]uintptr{invalid, invalid, invalid}})
		}
	}
	for family := range uintptr(50) {
		calls = append(calls, call{unix.SYS_SOCKET, [3]uintptr{family, invalid}}, call{unix.SYS_SOCKETPAIR, [3]uintptr{family, invalid}})
	}
	for _, persona := range []uintptr{0, 1, 4, 8, 9, 0x20000, 0x20008, 0x20009, 0xffffffff} {
		calls = append(calls, call{unix.SYS_PERSONALITY, [3]uintptr{persona}})
	}
	for a := range uintptr(6) {
		for _, b := range []uintptr{0, 1, 2, 3, 5, 1 << 30, 1<<30 | 5} {
			calls = append(calls,
				call{unix.SYS_SETPRIORITY, [3]uintptr{a, b}}, call{unix.SYS_SCHED_SETSCHEDULER, [3]uintptr{a + 9999, b}},
				call{unix.SYS_PRLIMIT64, [3]uintptr{a + 9999, b, b}}, call{unix.SYS_SCHED_SETATTR, [3]uintptr{a, b}},
				call{unix.SYS_KCMP, [3]uintptr{a, b, invalid}}, call{unix.SYS_UNSHARE, [3]uintptr{a | 1}})
		}
	}
	return calls
}

// run makes calls and prints a line for each before and after it.
func run(calls []call) {
	runtime.LockOSThread()
	for _, c := range calls {
		fmt.Println("call")
		_, _, errno := unix.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], 0, 0, 0)
		if errno == 0 {
			fmt.Println("ok")
		} else if name := unix.ErrnoName(errno); name != "" {
			fmt.Println(name)
		} else {
			fmt.Println(int(errno))
		}
	}
	os.Exit(0)
}

// next runs a process that makes calls from the first on, until it is done, ends or hangs. It returns the results.
func next(first int) ([]string, error) {
	cmd := exec.Command("/proc/self/exe", strconv.Itoa(first), "calls")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	// A call that waits for this long waits forever.
	timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var results []string
	open := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		timer.Reset(10 * time.Second)
		if open = lines.Text() == "call"; !open {
			results = append(results, lines.Text())
		}
	}
	err = cmd.Wait()
	var ended *exec.ExitError
	switch {
	case open && errors.As(err, &ended):
		return append(results, ended.String()), nil
	case open:
		return append(results, "ended"), nil
	}
	return results, err
}

// install installs the filter in a file.
func install(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	list := make([]unix.SockFilter, len(text)/8)
	if _, err := binary.Decode(text, binary.LittleEndian, list); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

func main() {
	calls := all()
	if len(os.Args) == 3 {
		first, err := strconv.Atoi(os.Args[1])
		if err != nil {
			os.Exit(2)
		}
		run(calls[first:])
	}
	if len(os.Args) == 2 {
		if err := install(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	found := map[string]string{}
	for i := 0; i < len(calls); {
		results, err := next(i)
		if err != nil || len(results) == 0 {
			fmt.Fprintln(os.Stderr, "after call", i, len(results), err)
			os.Exit(1)
		}
		for _, result := range results {
			c := calls[i]
			name := strconv.FormatUint(uint64(c.number&^x32Bit), 10)
			if c.number&x32Bit != 0 {
				name = "x32 " + name
			}
			if c.args != [3]uintptr{invalid, invalid, invalid} {
				name += fmt.Sprintf(" %x", c.args)
			}
			found[name] = result
			i++
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(1)
	}
}
