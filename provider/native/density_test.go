//go:build linux && (amd64 || arm64)

package native_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// An idle sandbox takes at most 4 descriptors of this process and 8 threads of the machine. With 20,000 descriptors and
// 32,768 process IDs, which are usual limits, a machine holds 4,000. On a busy machine, Go's runtime starts more threads
// than it needs, and keeps them. So further sandboxes are counted when the first ones have more.
func TestProvider_Start_density(t *testing.T) { // alone, since it counts what this process has
	const more, descriptors, threads, rounds = 5, 4, 8, 40
	p := newProvider(t, native.Options{})
	one := func() {
		if out := run(t, start(t, p, fumehood.Spec{Image: busybox}), "echo hello"); out != "hello" {
			t.Fatalf("got %q", out)
		}
	}
	one() // with what all share
	filesBefore, before := held(t)
	for round := 1; ; round++ {
		for range more {
			one()
		}
		filesAfter, after := held(t)
		if n := filesAfter - filesBefore; n > more*descriptors {
			t.Fatalf("%d sandboxes more take %d descriptors, more than %d each", more, n, descriptors)
		}
		if n := after - before; n <= more*threads {
			t.Logf("%d descriptors and %d threads for %d sandboxes, round %d", filesAfter-filesBefore, n, more, round)
			return
		} else if round == rounds {
			t.Fatalf("%d sandboxes more take %d threads, more than %d each, for the %dth time", more, n, threads, rounds)
		}
		filesBefore, before = filesAfter, after
	}
}

// held returns how many descriptors this process has, and how many threads its descendants.
func held(t *testing.T) (descriptors, threads int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	count := map[int]int{}      // of threads
	children := map[int][]int{} // of each process
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range statuses {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		value := map[string]int{}
		for line := range strings.Lines(string(text)) {
			key, rest, _ := strings.Cut(line, ":")
			value[key], _ = strconv.Atoi(strings.TrimSpace(rest)) // 0 for what is no number
		}
		count[value["Pid"]] = value["Threads"]
		children[value["PPid"]] = append(children[value["PPid"]], value["Pid"])
	}
	for rest := []int{os.Getpid()}; len(rest) > 0; rest = rest[1:] {
		for _, child := range children[rest[0]] {
			threads += count[child]
			rest = append(rest, child)
		}
	}
	return len(files), threads
}
