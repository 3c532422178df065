package cli

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
)

// detachedCap limits how much of each output stream of a detached command is kept in the sandbox, in bytes.
const detachedCap = 1 << 20

// execOptions are the options of `fumehood exec`.
type execOptions struct {
	named
	cmd     fumehood.Cmd
	json    bool
	journal journalFlag
}

func (a *commandLine) newExecCommand(runF func(context.Context, *commandLine, execOptions) error) *cobra.Command {
	var opts execOptions
	var env, ulimits []string
	cmd := &cobra.Command{
		Use:   "exec NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a named sandbox",
		Long: `Exec runs a command in a named sandbox, as "fumehood run" does in a new one. If
exec ends, for example by Ctrl-C, the command is killed. With --detach it keeps
running, and exec prints its number for "fumehood process". The last 1 MiB of
each output is kept until the command is forgotten.

With -t the command has a terminal, and TERM is that of this one if it is a
common type, otherwise xterm, unless -e or the service sets it.`,
		Example: `  fumehood exec box -- python3 -c 'print(6*7)'
  fumehood exec shop --service db -u postgres -- psql -c 'select 1'
  fumehood exec box -it -- bash
  fumehood exec box --detach -- python3 -m http.server`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opts.name, opts.cmd.Args, err = commandArguments(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			switch {
			case opts.cmd.Timeout < 0:
				return usageError("--timeout %v is negative", opts.cmd.Timeout)
			case opts.cmd.CPUTime < 0:
				return usageError("--cpu-time %v is negative", opts.cmd.CPUTime)
			case opts.json && (opts.cmd.TTY || opts.cmd.Detach):
				return usageError("--json cannot be combined with --tty or --detach")
			}
			if opts.cmd.Env, err = parseEnv(env, os.LookupEnv); err != nil {
				return usageError("%w", err)
			}
			if opts.cmd.Rlimits, err = parseUlimits(ulimits); err != nil {
				return usageError("%w", err)
			}
			if opts.cmd.TTY {
				opts.cmd.Term = a.terminalType()
			}
			return runF(cmd.Context(), a, opts)
		},
	}
	flags := cmd.Flags()
	opts.add(flags)
	opts.addUser(flags)
	flags.StringArrayVarP(&env, "env", "e", nil, "set a `variable` with NAME=VALUE, or pass on this process's with NAME")
	flags.StringVarP(&opts.cmd.Dir, "workdir", "w", "", "the working `directory` (default: the service's)")
	flags.DurationVar(&opts.cmd.Timeout, "timeout", 0, "kill the command after this time, such as 90s or 5m (default: no limit)")
	flags.DurationVar(&opts.cmd.CPUTime, "cpu-time", 0, "limit the processor time of the command and its descendants together, such as 10s (default: no limit)")
	flags.StringSliceVar(&ulimits, "ulimit", nil, "comma-separated `limits` of each process: cpu=10s, fsize=100MiB, nofile=64, nproc=32 (default: none)")
	flags.BoolVarP(&opts.cmd.TTY, "tty", "t", false, "give the command a terminal")
	flags.BoolVarP(&opts.cmd.StdinPipe, "interactive", "i", false, "with --detach: leave standard input open for \"fumehood process write\"")
	flags.BoolVarP(&opts.cmd.Detach, "detach", "d", false, "leave the command running, and print its number")
	flags.BoolVar(&opts.json, "json", false, "print a JSON object with outcome, output and errors")
	opts.journal.add(flags)
	return cmd
}

func runExec(ctx context.Context, a *commandLine, opts execOptions) error {
	journal, file, err := a.openJournal(opts.journal)
	if err != nil {
		return err
	}
	defer file.Close()
	opts.cmd.StdinPipe = opts.cmd.StdinPipe && opts.cmd.Detach
	if !opts.json {
		return a.in(ctx, opts.named, func(sb fumehood.Sandbox, svc fumehood.Service) error {
			sb.Record(journal)
			if opts.cmd.Detach {
				return a.detach(ctx, svc, opts.cmd)
			}
			return a.execShown(ctx, svc, opts.cmd)
		})
	}
	debug.SetGCPercent(holdingOutputs)
	var r report
	began := time.Now()
	err = a.in(ctx, opts.named, func(sb fumehood.Sandbox, svc fumehood.Service) (err error) {
		sb.Record(journal)
		r.recordStart(sb.Info(), time.Since(began))
		r.image = svc.ServiceInfo().Image
		opts.cmd.Stdin = a.In
		r.result, err = svc.Exec(ctx, opts.cmd)
		return err
	})
	if jerr := r.write(a.Out, err); jerr != nil {
		return jerr
	}
	if err != nil {
		return err
	}
	return a.resultError(opts.cmd, r.result)
}

// detach starts a command that keeps running, and prints its number.
func (a *commandLine) detach(ctx context.Context, svc fumehood.Service, cmd fumehood.Cmd) error {
	cmd.StdoutCap, cmd.StderrCap = detachedCap, detachedCap
	p, err := svc.Start(ctx, cmd)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Out, p.Info().ID)
	return err
}

// execShown runs a command and passes on its output as it arrives.
func (a *commandLine) execShown(ctx context.Context, svc fumehood.Service, cmd fumehood.Cmd) error {
	if cmd.TTY {
		res, err := a.inTerminal(ctx, svc, cmd)
		if err != nil {
			return err
		}
		return a.resultError(cmd, res)
	}
	cmd.Stdin = a.In
	a.pass(&cmd)
	res, err := svc.Exec(ctx, cmd)
	if err != nil {
		return ofOutput(err)
	}
	return a.resultError(cmd, res)
}

// resultError maps the result of a command in a named sandbox to our exit code. The sandbox's memory limit is not known
// here.
func (a *commandLine) resultError(cmd fumehood.Cmd, res *fumehood.Result) error {
	if res.Outcome == fumehood.OutOfMemory {
		return &exitError{code: exitMemory, err: fmt.Errorf("the command %s%s", outOfMemory(res), because(res))}
	}
	return a.verdict(runOptions{cmd: cmd}, res)
}
