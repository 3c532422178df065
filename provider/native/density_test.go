//go:build linux && (amd64 || arm64)

package native_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// An idle sandbox takes at most 4 descriptors of this process and 8 threads of the machine. With 20,000 descriptors and
// 32,768 process IDs, which are usual limits, a machine holds 4,000. On a busy machine, Go's runtime has more threads than
// it needs, and keeps them. So the sandbox with the fewest counts.
func TestProvider_Start_density(t *testing.T) { // alone, since it counts what this process has
	const more, descriptors, threads = 5, 4, 8
	p := newProvider(t, native.Options{})
	one := func() {
		if out := run(t, start(t, p, fumehood.Spec{Image: busybox}), "echo hello"); out != "hello" {
			t.Fatalf("got %q", out)
		}
	}
	one() // with what all share
	filesBefore, before := held(t)
	for range more {
		one()
	}
	filesAfter, after := held(t)
	if n := filesAfter - filesBefore; n > more*descriptors {
		t.Errorf("%d sandboxes more take %d descriptors, more than %d each", more, n, descriptors)
	}
	maps.DeleteFunc(after, func(child, _ int) bool { return before[child] > 0 })
	if len(after) != more {
		t.Fatalf("%d sandboxes have %d child processes", more, len(after))
	}
	if n := slices.Min(slices.Collect(maps.Values(after))); n > threads {
		t.Errorf("each of %d sandboxes takes %d threads or more, not %d: %v", more, n, threads, after)
	}
	t.Logf("%d descriptors for %d sandboxes, threads of each by process: %v", filesAfter-filesBefore, more, after)
}

// held returns how many descriptors this process has, and how many threads each of its children and that one's descendants.
func held(t *testing.T) (descriptors int, threads map[int]int) {
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
	threads = map[int]int{}
	for _, child := range children[os.Getpid()] {
		for rest := []int{child}; len(rest) > 0; rest = rest[1:] {
			threads[child] += count[rest[0]]
			rest = append(rest, children[rest[0]]...)
		}
	}
	return len(files), threads
}
