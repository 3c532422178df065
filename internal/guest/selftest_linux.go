package guest

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// selfTest tries what a sandbox's isolation and limits should prevent. Without arguments it tests the network. The
// other tests are "memory BYTES", "processes N" and "cpu MILLISECONDS". It returns 0 if the network cannot be
// reached, or if the requested resource could be used in full.
func selfTest(args []string, w io.Writer) int {
	if len(args) == 0 {
		return testNetwork(w)
	}
	n := 0
	if len(args) == 2 {
		n, _ = strconv.Atoi(args[1]) // 0 if it is not a number
	}
	switch {
	case n <= 0:
	case args[0] == "memory":
		return fill(n)
	case args[0] == "processes":
		return multiply(n, w)
	case args[0] == "cpu":
		return burn(time.Duration(n)*time.Millisecond, w)
	}
	return 2
}

// fill allocates memory and writes to each page.
func fill(bytes int) int {
	const page = 4096
	taken := make([]byte, bytes)
	for i := 0; i < bytes; i += page {
		taken[i] = 1
	}
	runtime.KeepAlive(taken)
	return 0
}

// multiply starts n waiting processes, and prints how many existed at once.
func multiply(n int, w io.Writer) int {
	var pids []int
	var failed error
	for len(pids) < n && failed == nil {
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"fumehood-guest"}, nil) // an idle guest
		if failed = err; err == nil {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
	_, _ = io.WriteString(w, strconv.Itoa(len(pids))+" processes\n")
	if failed != nil {
		_, _ = io.WriteString(w, failed.Error()+"\n")
		return 1
	}
	return 0
}

// burn keeps a processor busy for d, and prints the processor time that it used in milliseconds.
func burn(d time.Duration, w io.Writer) int {
	for end := time.Now().Add(d); time.Now().Before(end); {
		runtime.Gosched()
	}
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		_, _ = io.WriteString(w, err.Error()+"\n")
		return 1
	}
	used := time.Duration(use.Utime.Nano() + use.Stime.Nano())
	_, _ = io.WriteString(w, strconv.FormatInt(used.Milliseconds(), 10)+"\n")
	return 0
}

// testNetwork prints the sandbox's network as seen from inside. One line lists network devices other than the
// loopback, and one has the outcome of a connection to an outside address. It returns 0 if neither shows a network,
// otherwise 1.
func testNetwork(w io.Writer) int {
	devices, err := networkDevices()
	if err != nil {
		devices = []string{"unknown: " + err.Error()}
	}
	code := 0
	_, _ = io.WriteString(w, "network devices:")
	for _, d := range devices {
		_, _ = io.WriteString(w, " "+d)
		code = 1
	}
	met := reach([4]byte{192, 0, 2, 1}, 80) // TEST-NET-1 of RFC 5737, assigned to nobody
	_, _ = io.WriteString(w, "\nconnect: "+met.Error()+"\n")
	if !errors.Is(met, syscall.ENETUNREACH) {
		code = 1
	}
	return code
}

var errConnected = errors.New("the network can be reached")

// reach returns the kernel's immediate error for a connection to an address, or errConnected. It does not wait for an
// answer.
func reach(addr [4]byte, port int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: addr})
	if err == nil || errors.Is(err, syscall.EINPROGRESS) {
		return errConnected
	}
	return err
}

// networkDevices returns the devices other than the loopback from /proc/net/dev.
func networkDevices() ([]string, error) {
	dev, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(dev)) {
		name, _, ok := strings.Cut(line, ":") // heading lines have no colon
		if name = strings.TrimSpace(name); ok && name != "lo" {
			names = append(names, name)
		}
	}
	return names, nil
}
