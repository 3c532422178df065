package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// facts are what a figure means little without.
type facts struct {
	Date      time.Time
	Revision  string // of this module; empty where git does not tell
	Go        string
	Host      string // operating system and architecture
	Cores     int
	Kernel    string // the Engine's machine's
	MemoryMiB int64
	Engine    string
	Storage   string
	Cgroups   string
	Runtime   string
	CLI       string // empty where there is none
	Load      string // before the run, as in /proc/loadavg
	LoadAfter string
	Image     string
	Rounds    int
}

func learnFacts(ctx context.Context, opts options, contenders []contender) (facts, error) {
	f := facts{
		Date: time.Now().UTC(), Revision: output(ctx, "git", "describe", "--always", "--dirty"),
		Go: runtime.Version(), Host: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Load: load(),
		Image: opts.image, Rounds: opts.rounds,
	}
	for _, c := range contenders {
		switch c := c.(type) {
		case *bareContender:
			res, err := c.api.Info(ctx, client.InfoOptions{})
			if err != nil {
				return f, err
			}
			i := res.Info
			f.Kernel, f.MemoryMiB, f.Engine, f.Storage = i.KernelVersion, i.MemTotal>>20, i.ServerVersion, i.Driver
			f.Cgroups, f.Runtime = "v"+i.CgroupVersion, i.DefaultRuntime
		case *cliContender:
			f.CLI = output(ctx, c.program, "version", "--format", "{{.Client.Version}}")
		}
	}
	return f, nil
}

// output is what a program prints, or nothing where it fails.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// load is the machine's load in the last 1, 5 and 15 minutes, and empty where that is not told.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
