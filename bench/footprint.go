package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
)

// footprintCount is the number of idle sandboxes whose memory is measured.
const footprintCount = 20

const footprintRow = "memory of an idle sandbox"

// footprint is the memory of an idle sandbox that has run a command, in bytes. It means something on an idle machine only.
type footprint struct {
	contender string
	processes int64 // what all processes of the machine use more, each page counted once: guest, shim, daemon, this one
	charged   int64 // to the sandbox's control group, when it was read by a command in it
}

func (f footprint) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("%s, %s: %.2f MiB of all processes, %.2f MiB charged", footprintRow, f.contender, float64(f.processes)/mib, float64(f.charged)/mib)
}

// footprints measures our contenders that have a column of their own.
func footprints(ctx context.Context, contenders []contender, only *regexp.Regexp) (all []footprint, err error) {
	if !only.MatchString(footprintRow) || ctx.Err() != nil {
		return nil, nil
	}
	for _, c := range contenders {
		o, ok := c.(*oursContender)
		if !ok || o.called == byStream {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout) // like each step
		f, err := o.footprint(ctx)
		cancel()
		if errors.Is(err, os.ErrNotExist) { // not on Linux
			return nil, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}

func (o *oursContender) footprint(ctx context.Context) (f footprint, err error) {
	before, err := resident()
	if err != nil {
		return f, err
	}
	var boxes []fumehood.Sandbox
	defer func() {
		for _, sb := range boxes {
			err = errors.Join(err, sb.Close(ctx))
		}
	}()
	f.contender = o.called
	for range footprintCount {
		sb, err := o.sandbox(ctx)
		if err != nil {
			return f, err
		}
		boxes = append(boxes, sb)
		const script = "cat /sys/fs/cgroup/memory/memory.usage_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.current"
		res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"sh", "-c", script}})
		if err != nil {
			return f, err
		}
		charged, err := strconv.ParseInt(strings.TrimSpace(res.Stdout.Text()), 10, 64)
		if err != nil {
			return f, err
		}
		f.charged += charged / footprintCount
	}
	select { // the Engine and the guests come to rest
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	after, err := resident()
	f.processes = (after - before) / footprintCount
	return f, err
}

// resident returns the memory of all processes, in bytes: of shared pages each process has its share.
func resident() (sum int64, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/smaps_rollup")
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, os.ErrNotExist)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue // the process has ended
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if size, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
				kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(size, "kB")), 10, 64)
				if err != nil {
					return 0, err
				}
				sum += kib << 10
			}
		}
		_ = f.Close()
	}
	return sum, nil
}
