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

// facts describe the machine and the run: figures mean little without them.
type facts struct {
	Date      time.Time
	Revision  string // of this module; empty if git does not report it
	Go        string
	Host      string // operating system and architecture
	Cores     int
	Kernel    string // of the Engine's machine
	MemoryMiB int64
	Engine    string
	Storage   string
	Cgroups   string
	Runtime   string
	CLI       string // empty without a docker CLI
	Python    string // empty without the Python client
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
		case *pythonContender:
			f.Python = strings.TrimPrefix(output(ctx, c.program.cmd.Path, "--version"), "Python ")
		case *cliContender:
			f.CLI = output(ctx, c.program, "version", "--format", "{{.Client.Version}}")
		}
	}
	return f, nil
}

// output returns what a program prints, or "" if it fails.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// load returns the machine's load averages over 1, 5 and 15 minutes, or "" if they are not available.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
