package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/fumehood/fumehood"
)

// TestRun_jsonMemory checks that the outputs of a command are held only once, without copies as text and as JSON.
func TestRun_jsonMemory(t *testing.T) {
	t.Parallel()
	needDocker(t)
	dir := t.TempDir()
	program := withoutRaceDetector(t, dir)
	const most = 100 << 20 // bytes
	for name, script := range map[string]string{
		"text":   `yes | head -c 10485760; yes 'e"' | head -c 10485760 >&2`,
		"binary": `head -c 10485760 /dev/zero | tr '\0' '\377'; head -c 10485760 /dev/urandom >&2`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "run", "--json", "--image", "fumehood-test/busybox", "--", "sh", "-c", script)
			cmd.Env = environment(dir)
			pipe, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			// The program cannot end before everything is read except what fits in the pipe.
			var out bytes.Buffer
			var used int64
			for err == nil {
				if _, err = io.CopyN(&out, pipe, 1<<20); err == nil {
					used = max(used, peak(t, cmd.Process.Pid))
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			var got struct{ Stdout, Stderr fumehood.Output }
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Stdout.Total != 10<<20 || got.Stderr.Total != 10<<20 {
				t.Fatalf("%v, %d and %d bytes", err, got.Stdout.Total, got.Stderr.Total)
			}
			if t.Logf("%d MiB", used>>20); used == 0 || used > most {
				t.Errorf("it took %d MiB, want at most %d", used>>20, most>>20)
			}
		})
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak returns the peak memory of a process in bytes, or 0 if it has ended.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	found := highWater.FindSubmatch(text)
	if found == nil {
		return 0
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
