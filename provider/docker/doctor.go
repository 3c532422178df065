package docker

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider"
)

// Status is the result of one check.
type Status = provider.Status

// Check is one line of a diagnosis.
type Check = provider.Check

// The results of checks.
const (
	OK   = provider.StatusOK
	Warn = provider.StatusWarn
	Fail = provider.StatusFail
	Note = provider.StatusNote
)

// Versions of the Compose CLI below composeOld and below composeGood get different warnings.
const (
	composeOld  = "2.21"
	composeGood = "2.22"
)

// lowDisk is the free disk space, in bytes, below which there is a warning.
const lowDisk = 5 << 30

// Diagnose checks the daemon and its machine, and starts a sandbox from an image that it builds itself. It reports each
// check when it is done. It returns false if a check failed. It leaves nothing behind but the guest's cache.
func Diagnose(ctx context.Context, opts Options, report func(Check)) bool {
	ok := true
	tell := func(c Check) {
		ok = ok && c.Status != Fail
		report(c)
	}
	strict := opts.StrictPrereqs
	opts.StrictPrereqs = false // engineCheck reports it below
	opts.Logger = nil
	p, err := New(ctx, opts)
	if err != nil {
		tell(failedCheck("endpoint", err))
		tell(composeCLI(ctx))
		return false
	}
	defer func() {
		if err := p.Close(ctx); err != nil {
			tell(failedCheck("cleanup", err))
		}
	}()
	tell(Check{Name: "endpoint", Status: OK, Detail: p.engine.Endpoint()})
	server, err := p.engine.Server(ctx)
	if err != nil {
		tell(failedCheck("engine", err))
	} else {
		tell(engineCheck(server, strict))
	}
	tell(composeCLI(ctx))
	info, err := p.engine.Info(ctx)
	if err != nil {
		tell(failedCheck("configuration", err))
	} else {
		for _, c := range machineChecks(info) {
			tell(c)
		}
		tell(p.diskCheck(ctx, info.RootDir))
		if p.engine.Local() && !slices.Contains(info.Security, "rootless") {
			if c, ok := broadcastCheck(ipv4Settings); ok {
				tell(c)
			}
		}
	}
	tell(p.leftoverCheck(ctx))
	for _, c := range p.selfTest(ctx) {
		tell(c)
	}
	return ok
}

func failedCheck(name string, err error) Check {
	return Check{Name: name, Status: Fail, Detail: err.Error()}
}

func engineCheck(server engine.Server, strict bool) Check {
	c := Check{Name: "engine", Status: OK, Detail: fmt.Sprintf("%s, API %s, %s/%s", server.Version, server.API, server.OS, server.Arch)}
	if engine.VersionLess(server.Version, engine.GoodEngine) {
		c.Status, c.Hint = Warn, "it works, but lacks later fixes of its isolation: upgrade to "+engine.GoodEngine+" or newer"
		if strict {
			c.Status = Fail
		}
	}
	return c
}

// composeCLI looks for a Compose command line tool. Fumehood does not need one.
func composeCLI(ctx context.Context) Check {
	c := Check{Name: "compose CLI", Status: Note, Detail: "none found (not needed)"}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, line := range [][]string{{"docker", "compose", "version", "--short"}, {"docker-compose", "version", "--short"}} {
		out, err := exec.CommandContext(ctx, line[0], line[1:]...).Output()
		version := strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
		if err != nil || version == "" {
			continue
		}
		c.Detail, c.Status = version+" (not needed)", OK
		switch {
		case engine.VersionLess(version, composeOld):
			c.Status, c.Hint = Warn, "older than "+composeOld+": it may not understand the projects that it finds here"
		case engine.VersionLess(version, composeGood):
			c.Status, c.Hint = Warn, "older than "+composeGood+": it works, without `docker compose watch`"
		}
		return c
	}
	return c
}

// machineChecks evaluates what the Engine reports about its machine. It is pure.
func machineChecks(info engine.Info) []Check {
	has := func(option string) bool { return slices.Contains(info.Security, option) }
	yesNo := func(name string, yes bool, detail, missing, hint string) Check {
		if yes {
			return Check{Name: name, Status: OK, Detail: detail}
		}
		return Check{Name: name, Status: Warn, Detail: missing, Hint: hint}
	}
	users := Check{Name: "user namespaces", Status: Note, Detail: "off: root in a sandbox is the daemon's root, held by capabilities and seccomp"}
	switch {
	case has("rootless"):
		users = Check{Name: "user namespaces", Status: OK, Detail: "the daemon is rootless"}
	case has("userns"):
		users = Check{Name: "user namespaces", Status: OK, Detail: "remapped"}
	}
	return []Check{
		{Name: "machine", Status: Note, Detail: fmt.Sprintf("%d CPUs, %.1f GiB memory, kernel %s", info.CPUs, float64(info.Memory)/(1<<30), info.Kernel)},
		yesNo("cgroups", info.CgroupVersion != "1", "version "+info.CgroupVersion, "version 1: what waits in sockets is not part of a sandbox's memory",
			"code in a sandbox can take more memory than its limit by UDP and TCP: start the machine with version 2, or use --provider native"),
		storageCheck(info),
		yesNo("seccomp", has("seccomp"), "on", "off", "the daemon cannot filter system calls: sandboxes need `--seccomp unconfined` there, or seccomp in its kernel and build"),
		yesNo("AppArmor", has("apparmor") || has("selinux"), "on (or SELinux)", "neither AppArmor nor SELinux", "one layer of isolation less; seccomp and capabilities still hold"),
		users,
		{Name: "runtimes", Status: OK, Detail: strings.Join(info.Runtimes, ", ")},
	}
}

func storageCheck(info engine.Info) Check {
	backing := info.DriverStatus["Backing Filesystem"]
	c := Check{Name: "storage", Status: OK, Detail: info.Driver}
	if backing != "" {
		c.Detail += " on " + backing
	}
	switch {
	case info.Driver == "btrfs", info.Driver == "zfs", info.Driver == "overlay2" && backing == "xfs":
		c.Detail += ", disk quotas possible"
	default:
		c.Detail += ", no disk quotas: a sandbox can fill the disk"
		c.Status = Note
	}
	if info.Driver == "vfs" {
		c.Status, c.Hint = Warn, "vfs copies whole images for each container: use overlay2"
	}
	return c
}

func (p *Provider) diskCheck(ctx context.Context, dir string) Check {
	c := Check{Name: "disk", Status: Note, Detail: "unknown: the daemon is on another machine"}
	if !p.engine.Local() {
		return c
	}
	usage, err := disk.UsageWithContext(ctx, dir)
	if err != nil {
		c.Detail = "unknown: " + err.Error()
		return c
	}
	c.Status, c.Detail = OK, fmt.Sprintf("%.1f GiB free in %s", float64(usage.Free)/(1<<30), dir)
	if usage.Free < lowDisk {
		c.Status, c.Hint = Warn, "remove what is not needed: `fumehood cleanup --caches`, `docker system df`"
	}
	return c
}

func (p *Provider) leftoverCheck(ctx context.Context) Check {
	plan, err := p.Cleanup(ctx, provider.CleanupOptions{DryRun: true})
	if err != nil {
		return failedCheck("leftovers", err)
	}
	var left, kept, caches int
	for _, l := range plan {
		switch {
		case l.Remove:
			left++
		case l.Cache:
			caches++
		case l.Kept:
			kept++
		}
	}
	c := Check{Name: "leftovers", Status: OK, Detail: fmt.Sprintf("none (%d kept, %d caches)", kept, caches)}
	if left > 0 {
		c.Status, c.Detail, c.Hint = Warn, fmt.Sprintf("%d objects of dead owners (%d kept, %d caches)", left, kept, caches), "remove them with `fumehood cleanup`"
	}
	return c
}

// selfTest starts a sandbox from the guest's own image, so that it needs no registry. It runs one command that looks
// for a network, and some that try to exceed the sandbox's limits. Then it removes the sandbox.
func (p *Provider) selfTest(ctx context.Context) (checks []Check) {
	server, err := p.engine.Server(ctx)
	if err != nil {
		return []Check{failedCheck("sandbox", err)}
	}
	guest, err := p.guestFor(ctx, server.Arch, p.opts.Logger)
	if err != nil {
		return []Check{failedCheck("sandbox", err)}
	}
	image, err := p.importGuest(ctx, guest, server.Arch)
	if err != nil {
		return []Check{failedCheck("sandbox", err)}
	}
	defer func() {
		if err := p.engine.Untag(context.WithoutCancel(ctx), image); err != nil {
			checks = append(checks, failedCheck("sandbox", err))
		}
	}()
	begin := time.Now()
	sb, err := p.Start(ctx, fumehood.Spec{Image: image, Limits: fumehood.Limits{Memory: probeMemory, PIDs: probePIDs, CPUs: probeCPUs}})
	if err != nil {
		return []Check{failedCheck("sandbox", err)}
	}
	started := time.Since(begin)
	begin = time.Now()
	res, err := sb.Exec(ctx, fumehood.Cmd{Args: selfTestArgs, Timeout: selfTestWithin})
	ran := time.Since(begin)
	checks = []Check{isolationCheck(res, err)}
	if checks[0].Status == OK {
		checks = append(checks, commandsCheck(ctx, sb))
	}
	info, err := p.info(ctx)
	if err != nil {
		checks = append(checks, failedCheck("limits", err))
	}
	for _, probe := range limitProbes {
		if err == nil && !probe.can(info.Holds) {
			checks = append(checks, Check{Name: probe.name, Status: Fail, Detail: "the daemon cannot enforce it", Hint: engine.UnheldHint})
			continue
		}
		checks = append(checks, probe.checkLimit(ctx, sb))
	}
	begin = time.Now()
	if err := sb.Close(ctx); err != nil {
		return append(checks, failedCheck("sandbox", err))
	}
	return append(checks, Check{
		Name: "sandbox", Status: OK,
		Detail: fmt.Sprintf("started in %d ms, a command in %d ms, removed in %d ms", started.Milliseconds(), ran.Milliseconds(), time.Since(begin).Milliseconds()),
	})
}

// selfTestArgs is the command that doctor runs. Every user may run it.
var selfTestArgs = []string{compose.ReadableGuest, "selftest"}

// selfTestWithin is the timeout of each command of doctor.
const selfTestWithin = 30 * time.Second

// commandsCheck runs commands in each of the ways to run one: one after the other, with live output, with an input, and
// as another user.
func commandsCheck(ctx context.Context, sb fumehood.Sandbox) Check {
	const name = "commands"
	runtime := cmp.Or(sb.ServiceInfo().Runtime, "the default runtime")
	for _, c := range []struct {
		name string
		live bool
		cmd  fumehood.Cmd
	}{
		{"a second command", false, fumehood.Cmd{}},
		{"a command that is followed", true, fumehood.Cmd{}},
		{"a command with an input", false, fumehood.Cmd{Stdin: strings.NewReader("input")}},
		{"a command of another user", false, fumehood.Cmd{User: "65534:65534"}},
		{"a second command of another user", true, fumehood.Cmd{User: "65534:65534"}},
	} {
		c.cmd.Args, c.cmd.Timeout = selfTestArgs, selfTestWithin
		res, err := runOnce(ctx, sb, c.cmd, c.live)
		if err == nil && res.Outcome != fumehood.Exited {
			err = fmt.Errorf("it %s", inWords(res.Outcome))
			if res.Outcome == fumehood.TimedOut {
				err = fmt.Errorf("not finished after %v", selfTestWithin)
			}
		}
		if err != nil {
			return Check{Name: name, Status: Fail, Detail: fmt.Sprintf("%s, under %s: %v", c.name, runtime, err), Hint: "choose another runtime with --runtime"}
		}
	}
	return Check{Name: name, Status: OK, Detail: "work for root and for another user, under " + runtime}
}

// runOnce runs a command. If live is set, it follows the output.
func runOnce(ctx context.Context, sb fumehood.Sandbox, cmd fumehood.Cmd, live bool) (*fumehood.Result, error) {
	if !live {
		return sb.Exec(ctx, cmd)
	}
	p, err := sb.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// inWords describes an outcome other than Exited, for a sentence that begins with "it".
func inWords(o fumehood.Outcome) string {
	switch o {
	case fumehood.TimedOut:
		return "has timed out"
	case fumehood.OutOfMemory:
		return "has run out of memory"
	case fumehood.Signaled:
		return "was killed by a signal"
	case fumehood.CPUTimeExceeded:
		return "has exceeded its limit of processor time"
	case fumehood.Exited, fumehood.Lost:
	}
	return "is " + string(o)
}

func isolationCheck(res *fumehood.Result, err error) Check {
	const name = "isolation"
	switch {
	case err != nil:
		return failedCheck(name, err)
	case res.Outcome != fumehood.Exited:
		return Check{Name: name, Status: Fail, Detail: fmt.Sprintf("the command in the sandbox %s", inWords(res.Outcome))}
	case !res.Success():
		return Check{Name: name, Status: Fail, Detail: "a sandbox without a network has a device or route: " + strings.ReplaceAll(strings.TrimSpace(res.Stdout.Text()), "\n", "; ")}
	}
	return Check{Name: name, Status: OK, Detail: "no network device but the loopback, and no route"}
}

// The limits of the self-test's sandbox, and what the probes try to use.
const (
	probeMemory, triedMemory = 64 << 20, 256 << 20
	probePIDs, triedPIDs     = 64, 128
	probeCPUs                = 0.25
	// triedCPU is how long a program keeps a processor busy, and mostCPU how much processor time it may get. A limit
	// applies to periods of 100 ms, and a busy machine gives less.
	triedCPU, mostCPU = time.Second, 600 * time.Millisecond
)

// limitProbe tries to exceed a limit.
type limitProbe struct {
	name string
	can  func(engine.Holds) bool // whether the daemon claims to enforce the limit
	args []string
	held func(res *fumehood.Result) bool
	over string // the failure message if the limit is not enforced
}

// limitProbes ends with the memory limit, because some runtimes kill the whole sandbox when it runs out of memory.
var limitProbes = []limitProbe{
	{
		"cpu limit", func(h engine.Holds) bool { return h.CPUs },
		[]string{"cpu", strconv.FormatInt(triedCPU.Milliseconds(), 10)},
		func(res *fumehood.Result) bool {
			used, err := strconv.Atoi(strings.TrimSpace(res.Stdout.Text()))
			return res.Success() && err == nil && time.Duration(used)*time.Millisecond <= mostCPU
		},
		fmt.Sprintf("a program used a whole processor, with a limit of %g", probeCPUs),
	},
	{
		"process limit", func(h engine.Holds) bool { return h.PIDs },
		[]string{"processes", strconv.Itoa(triedPIDs)},
		func(res *fumehood.Result) bool { return !res.Success() && res.Outcome == fumehood.Exited },
		fmt.Sprintf("%d processes ran where %d are allowed", triedPIDs, probePIDs),
	},
	{
		"memory limit", func(h engine.Holds) bool { return h.Memory },
		[]string{"memory", strconv.Itoa(triedMemory)},
		func(res *fumehood.Result) bool { return !res.Success() },
		fmt.Sprintf("a program took %d MiB where %d are allowed", triedMemory>>20, probeMemory>>20),
	},
}

// probeWithin is the timeout of a probe.
const probeWithin = 30 * time.Second

func (l limitProbe) checkLimit(ctx context.Context, sb fumehood.Sandbox) Check {
	res, err := sb.Exec(ctx, fumehood.Cmd{Args: append([]string{compose.GuestProgram, "selftest"}, l.args...), Timeout: probeWithin})
	switch {
	case err != nil:
		return failedCheck(l.name, err)
	case res.Outcome == fumehood.TimedOut:
		return Check{Name: l.name, Status: Fail, Detail: fmt.Sprintf("probe not finished after %v", probeWithin)}
	case !l.held(res):
		return Check{Name: l.name, Status: Fail, Detail: l.over, Hint: engine.UnheldHint}
	}
	return Check{Name: l.name, Status: OK, Detail: "held"}
}
