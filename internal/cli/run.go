package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/session/spec"
)

// runOptions are the options of `fumehood run`.
type runOptions struct {
	spec    app.Described
	cmd     fumehood.Cmd
	in, out []app.Transfer // copies before and after the command
	json    bool
	journal journalFlag
}

// sandboxFlags are the flags that describe a sandbox of an image, as typed.
type sandboxFlags struct {
	image, user, workdir, memory, disk, shmSize, network string
	env, mounts, tmpfs                                   []string
	cpus                                                 float64
	pids                                                 int64
}

// runFlags are the flags of `fumehood run`, as typed.
type runFlags struct {
	sandboxFlags
	project         projectFlags
	copies, ulimits []string
	copyOut         copyOutFlags
	timeout         time.Duration
	cpuTime         time.Duration
	json, keep      bool
	tty             bool
	journal         journalFlag
}

func (a *commandLine) newRunCommand(runF func(context.Context, *commandLine, runOptions) error) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run one command in a new sandbox, then remove the sandbox",
		Long: `Run runs one command in a new sandbox. Output and standard input are passed
through, and the exit code is the command's own. Without --network the command
has no network. After a timeout the exit code is 124 and a message is printed; a
program's own 124 has no message.

With -f, a file or folder describes the sandbox: a Compose project, where the
command runs in the default service once all services are ready; a Dockerfile;
or an environment spec, which flags override and whose setup is not run. A
folder is searched for these in that order; a folder without any is an error.

With -t the command has a terminal, and TERM is that of this one if it is a
common type, otherwise xterm, unless -e or the image sets it.`,
		Example: `  fumehood run --image python:3.12-slim -- python3 -c 'print(6*7)'
  echo 'print(6*7)' | fumehood run --timeout 10s --memory 256MiB -- python3
  fumehood run --cp ./src:/src --cp :/src/out.txt:out.txt -w /src -- ./check.sh
  fumehood run -f compose.yaml --service app -- ./check.sh
  fumehood run -it --image debian:12 -- bash
  fumehood run --json -- sh -c 'exit 3'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("run needs a command to run")
			}
			opts, err := f.options(args)
			if err != nil {
				return usageError("%w", err)
			}
			if opts.cmd.TTY {
				opts.cmd.Term = a.terminalType()
			}
			if opts.spec, err = a.describe(&f.project, opts.spec.Spec); err != nil {
				return err
			}
			return runF(cmd.Context(), a, opts)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // arguments after COMMAND belong to the command
	f.add(flags)
	f.project.add(flags)
	flags.DurationVar(&f.timeout, "timeout", 0, "kill the command after this time, such as 90s or 5m (default: no limit)")
	flags.DurationVar(&f.cpuTime, "cpu-time", 0, "limit the processor time of the command and its descendants together, such as 10s (default: no limit)")
	flags.StringSliceVar(&f.ulimits, "ulimit", nil, "comma-separated `limits` of each process: cpu=10s, fsize=100MiB, nofile=64, nproc=32 (default: none)")
	flags.StringArrayVar(&f.copies, "cp", nil, "`copy` a file or tree: HOST:SANDBOX in before the command, or :SANDBOX:HOST out after it")
	f.copyOut.add(flags)
	flags.BoolVar(&f.json, "json", false, "print a JSON object with outcome, output and errors")
	flags.BoolVar(&f.keep, "keep", false, "keep the sandbox, and print how to enter and remove it")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	flags.BoolP("interactive", "i", false, "for -it: standard input is always passed through")
	f.journal.add(flags)
	markSettings(flags, "timeout")
	return cmd
}

// add declares the flags.
func (f *sandboxFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.image, "image", "", "the `image`; pulled if the daemon does not have it (default: --default-image)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set a `variable` with NAME=VALUE, or pass on this process's with NAME")
	flags.StringVarP(&f.user, "user", "u", "", "the `user`: name, uid, or either with :group (default: the image's)")
	flags.StringVarP(&f.workdir, "workdir", "w", "", "the working `directory`, an absolute path, created if missing (default: the image's)")
	flags.StringVar(&f.memory, "memory", "", "memory limit including swap, a `size` such as 512MiB, or none (default 2GiB)")
	flags.Float64Var(&f.cpus, "cpus", 0, "maximum `number` of CPUs, such as 1.5 (default: all)")
	flags.Int64Var(&f.pids, "pids", 0, "maximum `number` of processes and threads; -1 for no limit (default 1024)")
	flags.StringVar(&f.disk, "disk", "", "limit of the files that are written, a `size` such as 10GiB; needs the provider native (default: 1 GiB there, at most half of the memory)")
	flags.StringVar(&f.shmSize, "shm-size", "", "`size` of /dev/shm, such as 1GiB, up to the memory limit (default 64MiB)")
	flags.StringArrayVar(&f.tmpfs, "tmpfs", nil, "mount an empty `file system` in memory, PATH[:OPTION,...] with options such as size=64MiB, mode=0700, exec; added to those of an environment spec")
	flags.StringVar(&f.network, "network", "", "none, bridge, host, or the `name` of an existing network; all but none weaken the isolation (default none)")
	flags.StringArrayVarP(&f.mounts, "volume", "v", nil, "`mount` a path of this machine, HOST:SANDBOX[:ro|:rw] (default: read-only)")
	markSettings(flags, "image", "user", "workdir", "memory", "cpus", "pids", "disk", "network")
}

// spec checks the flags and returns the spec of the sandbox.
func (f *sandboxFlags) spec() (fumehood.Spec, error) {
	s := fumehood.Spec{
		Image: f.image, User: f.user, Dir: f.workdir, Network: fumehood.Network{Mode: f.network}, Tmpfs: f.tmpfs,
		Limits: fumehood.Limits{CPUs: f.cpus, PIDs: f.pids},
	}
	var err error
	if f.memory != "" {
		if s.Limits.Memory, err = spec.ParseSize(f.memory); err != nil {
			return s, fmt.Errorf("--memory %w", err)
		}
	}
	if f.disk != "" {
		if s.Limits.Disk, err = spec.ParseSize(f.disk); err != nil {
			return s, fmt.Errorf("--disk %w", err)
		}
	}
	if f.shmSize != "" {
		if s.ShmSize, err = spec.ParseSize(f.shmSize); err != nil || s.ShmSize <= 0 {
			return s, fmt.Errorf("--shm-size %q is not a size: write a number and a unit, such as 1GiB", f.shmSize)
		}
	}
	if s.Env, err = parseEnv(f.env, os.LookupEnv); err != nil {
		return s, err
	}
	for _, m := range f.mounts {
		mount, err := parseMount(m)
		if err != nil {
			return s, err
		}
		s.Mounts = append(s.Mounts, mount)
	}
	return s, nil
}

// options checks the flags and returns the options of the run.
func (f *runFlags) options(args []string) (runOptions, error) {
	if f.timeout < 0 {
		return runOptions{}, fmt.Errorf("--timeout %v is negative", f.timeout)
	}
	if f.cpuTime < 0 {
		return runOptions{}, fmt.Errorf("--cpu-time %v is negative", f.cpuTime)
	}
	if f.json && f.tty {
		return runOptions{}, errors.New("--json cannot be combined with --tty")
	}
	spec, err := f.spec()
	if err != nil {
		return runOptions{}, err
	}
	spec.Keep = f.keep
	opts := runOptions{json: f.json, journal: f.journal, spec: app.Described{Spec: spec}, cmd: fumehood.Cmd{Args: args, Timeout: f.timeout, CPUTime: f.cpuTime, TTY: f.tty}}
	if opts.cmd.Rlimits, err = parseUlimits(f.ulimits); err != nil {
		return runOptions{}, err
	}
	for _, c := range f.copies {
		t, out, err := parseTransfer(c)
		if err == nil {
			err = f.copyOut.apply(&t)
		}
		switch {
		case err != nil:
			return runOptions{}, err
		case out:
			opts.out = append(opts.out, t)
		default:
			opts.in = append(opts.in, t)
		}
	}
	return opts, opts.spec.Validate()
}

func parseEnv(vars []string, lookup func(string) (string, bool)) (map[string]string, error) {
	env := map[string]string{}
	for _, v := range vars {
		name, value, ok := strings.Cut(v, "=")
		if name == "" {
			return nil, fmt.Errorf("--env %q has no name", v)
		}
		if !ok {
			if value, ok = lookup(name); !ok {
				return nil, fmt.Errorf("--env %s: this process has no such variable; write NAME=VALUE", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// parseUlimits parses NAME=VALUE pairs. The names are cpu, fsize, nofile and nproc, as in setrlimit(2).
func parseUlimits(limits []string) (fumehood.Rlimits, error) {
	var l fumehood.Rlimits
	for _, s := range limits {
		name, value, _ := strings.Cut(s, "=")
		var err error
		switch name {
		case "cpu":
			if l.CPU, err = time.ParseDuration(value); err != nil || l.CPU < time.Second || l.CPU%time.Second != 0 {
				return l, fmt.Errorf("--ulimit %q: write whole seconds, such as cpu=10s", s)
			}
		case "fsize":
			if l.FileSize, err = spec.ParseSize(value); err != nil || l.FileSize <= 0 {
				return l, fmt.Errorf("--ulimit %q: write a number and a unit, such as fsize=100MiB", s)
			}
		case "nofile", "nproc":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n <= 0 {
				return l, fmt.Errorf("--ulimit %q: write a number, such as %s=64", s, name)
			}
			if name == "nofile" {
				l.OpenFiles = n
			} else {
				l.Processes = n
			}
		default:
			return l, fmt.Errorf("--ulimit %q: there are cpu, fsize, nofile and nproc, each with = and a value", s)
		}
	}
	return l, nil
}

// parseMount parses HOST:SANDBOX[:ro|:rw]. The mount is read-only by default.
func parseMount(s string) (fumehood.Mount, error) {
	host, rest, ok := cutHost(s)
	path, mode, hasMode := strings.Cut(rest, ":")
	if !ok || host == "" || !strings.HasPrefix(path, "/") || hasMode && mode != "ro" && mode != "rw" {
		return fumehood.Mount{}, fmt.Errorf("--volume %q is not HOST:SANDBOX[:ro|:rw] with an absolute SANDBOX path", s)
	}
	abs, err := filepath.Abs(host)
	if err != nil {
		return fumehood.Mount{}, err
	}
	return fumehood.Mount{Host: abs, Container: path, Writable: mode == "rw"}, nil
}

// cutHost splits HOST:REST. The colon of a Windows drive belongs to HOST.
func cutHost(s string) (host, rest string, ok bool) {
	drive := len(filepath.VolumeName(s))
	host, rest, ok = strings.Cut(s[drive:], ":")
	return s[:drive] + host, rest, ok
}

// runSandbox runs `fumehood run`.
func runSandbox(ctx context.Context, a *commandLine, opts runOptions) error {
	var r report
	if opts.json {
		debug.SetGCPercent(holdingOutputs)
	}
	err := a.runReported(ctx, opts, &r)
	if opts.json {
		if jerr := r.write(a.Out, err); jerr != nil {
			return jerr
		}
	}
	if err != nil {
		return err
	}
	return a.verdict(opts, r.result)
}

func (a *commandLine) runReported(ctx context.Context, opts runOptions, r *report) error {
	journal, file, err := a.openJournal(opts.journal)
	if err != nil {
		return err
	}
	defer file.Close()
	opts.spec.Journal = journal
	opts.cmd.Stdin = a.In
	do := app.RunOptions{Sandbox: opts.spec, Cmd: opts.cmd, In: opts.in, Out: opts.out}
	do.Started = func(sb fumehood.Sandbox, took time.Duration) {
		r.recordStart(sb.Info(), took)
		if opts.spec.Keep {
			a.logKept(ctx, sb)
		}
	}
	switch {
	case opts.cmd.TTY:
		do.Exec = a.inTerminal
	case !opts.json:
		a.pass(&do.Cmd)
	}
	r.result, err = a.actions().Run(ctx, do)
	return ofOutput(err)
}

// ofOutput returns the exitError in err if a failed write of our own output ended the command, otherwise err.
func ofOutput(err error) error {
	var exit *exitError
	if errors.As(err, &exit) {
		return exit
	}
	return err
}

// pass makes cmd pass its output on as it arrives. The result keeps no output.
func (a *commandLine) pass(cmd *fumehood.Cmd) {
	cmd.Stdout, cmd.Stderr = passed{a, fumehood.Stdout}, passed{a, fumehood.Stderr}
	cmd.StdoutCap, cmd.StderrCap = fumehood.KeepNone, fumehood.KeepNone
}

// passed is a writer that passes a command's stream on to ours.
type passed struct {
	to     *commandLine
	stream fumehood.Stream
}

func (p passed) Write(data []byte) (int, error) {
	if err := p.to.show(p.stream, data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// show writes a command's output to our corresponding stream.
func (a *commandLine) show(s fumehood.Stream, data []byte) error {
	if _, err := a.of(s).Write(data); err != nil {
		return outputError(err) // for standard error; standard output has done so itself
	}
	return nil
}

// of returns our stream for a command's stream.
func (a *commandLine) of(s fumehood.Stream) io.Writer {
	if s == fumehood.Stderr {
		return a.Err
	}
	return a.Out
}

// verdict maps a command's result to our exit code, with a message if the code alone is ambiguous.
func (a *commandLine) verdict(opts runOptions, res *fumehood.Result) error {
	switch res.Outcome {
	case fumehood.Exited, fumehood.Signaled:
		switch {
		case res.ExitCode == 0:
			return nil
		case strings.HasPrefix(res.Reason, "killed by"):
			return &exitError{code: res.ExitCode, err: fmt.Errorf("the command was %s", res.Reason)}
		case res.Reason != "":
			return &exitError{code: res.ExitCode, err: errors.New(res.Reason)}
		}
		return &exitError{code: res.ExitCode}
	case fumehood.TimedOut:
		return &exitError{code: exitTimeout, err: fmt.Errorf("the command timed out after %v", opts.cmd.Timeout)}
	case fumehood.CPUTimeExceeded:
		return &exitError{code: exitTimeout, err: fmt.Errorf("the command exceeded its limit of processor time%s%s", ofLimit(opts.cmd.CPUTime), because(res))}
	case fumehood.OutOfMemory:
		limit := "no limit is set, so the machine's memory ran out"
		if memory := opts.spec.Limits.WithDefaults().Memory; memory != fumehood.NoLimit {
			limit = "limit " + spec.FormatSize(memory)
		}
		return &exitError{code: exitMemory, err: fmt.Errorf("the command %s (%s)%s", outOfMemory(res), limit, because(res))}
	case fumehood.Lost:
		return &exitError{code: exitFailure, err: fmt.Errorf("the command is lost, and its outcome is unknown: %s", res.Reason)}
	}
	return &fumehood.Error{Op: "run", Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("unknown outcome %q", res.Outcome)}
}

// ofLimit returns a limit as a phrase, or "" if it is not known.
func ofLimit(limit time.Duration) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf(" of %v", limit)
}

// outOfMemory returns how a command ran out of memory, as a phrase after "the command".
func outOfMemory(res *fumehood.Result) string {
	if res.Reason != "" { // another process was killed
		return "ran out of memory"
	}
	return "was killed: out of memory"
}

// because returns the reason of a result after a colon, or "".
func because(res *fumehood.Result) string {
	if res.Reason == "" {
		return ""
	}
	return ": " + res.Reason
}

// logKept logs how to enter and remove a sandbox that stays.
func (a *commandLine) logKept(ctx context.Context, sb fumehood.Sandbox) {
	a.tell("the sandbox stays; remove it with: fumehood cleanup %s", sb.Info().Name)
	if c, err := sb.Connection(ctx); err == nil {
		a.tell("enter it with: %s", spec.QuoteAll(c.Shell))
	}
}
