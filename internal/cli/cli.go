// Package cli is the command line: one file for each command, which parses flags into options and calls
// the library. It is the only place that maps outcomes and errors to exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// Streams are the program's standard streams.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// The exit codes that are ours and not the program's. 124 to 127 are those of timeout(1), env(1) and the
// shell.
const (
	exitCheckFailed   = 1 // doctor: a check failed
	exitUsage         = 2
	exitTimeout       = 124
	exitFailure       = 125 // we failed
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the signal's number: we were told to end
)

// exitError carries an exit code up to Main. Where err is nil there is nothing to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a wrong use of the command line.
func usageError(format string, a ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, a...)}
}

// commandLine is what all commands share.
type commandLine struct {
	Streams
	settings  settings
	log       *slog.Logger
	provider  string
	transport string
	image     string // the default one
	strict    bool
	logFormat string
	logLevel  string
	quiet     bool // see quietly
	noReaper  bool
	seccomp   string // a profile's file
	runtime   string // of containers

	allowUnenforced bool // limits
}

// Main runs the command line and returns the exit code. The first SIGINT, SIGTERM or SIGHUP cancels what
// is under way, which is then cleaned up; the second ends the process at once.
func Main(ctx context.Context, args []string, streams Streams) int {
	logrus.SetOutput(io.Discard) // the Compose libraries' log: what matters comes as errors and notes
	ctx, stop := onSignal(ctx, func(code int) { os.Exit(code) })
	defer stop()
	return run(ctx, args, streams)
}

func run(ctx context.Context, args []string, streams Streams) int {
	streams.Out = &output{w: streams.Out, ending: ctx.Done()}
	a := &commandLine{Streams: streams, settings: settings{env: os.LookupEnv, configFile: configFile()}}
	a.log = slog.New(newLogHandler(streams.Err, slog.LevelInfo)) // until flags say otherwise
	root := a.rootCommand()                                      //nolint:contextcheck // commands get theirs from ExecuteContext
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.finish(ctx, cmd.CommandPath(), err)
}

// finish says what went wrong and returns the exit code. command is the command that was run.
func (a *commandLine) finish(ctx context.Context, command string, err error) int {
	if err == nil {
		return 0
	}
	var told *signaled
	if errors.As(context.Cause(ctx), &told) && wasCancelled(err) {
		a.complain("ended by "+told.name, told.exitCode(), err)
		return told.exitCode()
	}
	code := exitCode(err)
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return code
	}
	a.complain(err.Error(), code, err)
	if code == exitUsage && a.logFormat != logJSON {
		fmt.Fprintf(a.Err, "Run '%s --help' for its usage.\n", strings.TrimSuffix(command, " help"))
	}
	return code
}

// complain says on standard error why the program ends with a code of its own.
func (a *commandLine) complain(message string, code int, err error) {
	if a.logFormat == logJSON {
		args := []any{"exit_code", code}
		if fumehood.ClassOf(err) != nil || code == exitUsage { // else it is the command's own end
			args = append(args, "class", describe(err).Class)
		}
		a.log.Error(message, args...)
		return
	}
	fmt.Fprintf(a.Err, "fumehood: %s\n", strings.ReplaceAll(plain(message), "\n", "\nfumehood: "))
}

// wasCancelled reports whether err says that something was ended before its time.
func wasCancelled(err error) bool {
	var told *signaled
	return errors.Is(err, fumehood.ErrCancelled) || errors.Is(err, context.Canceled) || errors.As(err, &told)
}

// exitCode maps an error to an exit code.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, fumehood.ErrNotExecutable), errors.Is(err, fumehood.ErrNotStarted) && !errors.Is(err, fumehood.ErrProgramNotFound):
		return exitNotExecutable
	case errors.Is(err, fumehood.ErrProgramNotFound):
		return exitNotFound
	}
	return exitFailure
}

func (a *commandLine) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "fumehood",
		Short: "Run untrusted code in disposable sandboxes",
		Long: `Fumehood runs untrusted code in disposable Docker sandboxes: no network, few
rights, bounded memory and processes, nothing left behind.

Settings come from flags, else from variables FUMEHOOD_<FLAG> (FUMEHOOD_IMAGE
for --image), else from $XDG_CONFIG_HOME/fumehood/config.yaml (a line such as
"image: python:3.12-slim"). The daemon is found as the docker command finds it:
DOCKER_HOST, else the current docker context, else the rootless daemon's socket,
else the default socket.

Exit codes of run: the command's own; 124 it ran out of time; 125 Fumehood
failed; 126 and 127 it could not be started; 2 wrong usage; 130 and 143 ended by
Ctrl-C and by SIGTERM.`,
		Example: `  fumehood run --image python:3.12-slim -- python3 -c 'print(6*7)'
  fumehood run --seccomp profile.json -- ./server
  fumehood doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.settings.apply(cmd); err != nil {
				return err
			}
			return a.setUpLog()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.In)
	root.SetOut(a.Out) // before the completion command is made, which asks at once
	root.SetErr(a.Err)
	root.PersistentFlags().StringVar(&a.provider, "provider", "docker", "the `provider` of sandboxes: docker, or local for host processes without any isolation")
	root.PersistentFlags().BoolVar(&a.strict, "strict-prereqs", false, "refuse a Docker Engine that is too old for full isolation, instead of warning")
	root.PersistentFlags().StringVar(&a.transport, "transport", "", "the `way` commands reach a Docker sandbox: guest, or engine for nothing of ours inside to trust, slower and with limits (default guest)")
	root.PersistentFlags().StringVar(&a.image, "default-image", docker.DefaultImage, "the `image` of sandboxes that name none, and that which builtin images are built on")
	root.PersistentFlags().StringVar(&a.logFormat, "log-format", logText, "the `format` of what is told on standard error: text, or json for a JSON object a line")
	root.PersistentFlags().StringVar(&a.logLevel, "log-level", "info", "the least `level` of what is told: debug, info, warn or error")
	root.PersistentFlags().BoolVar(&a.noReaper, "no-reaper", false, "start no second process that removes the sandboxes should this one be killed")
	root.PersistentFlags().BoolVar(&a.allowUnenforced, "allow-unenforced-limits", false, "run Docker sandboxes where the daemon cannot hold their limits, as without control groups, instead of refusing")
	root.PersistentFlags().StringVar(&a.seccomp, "seccomp", "", "the `file` of another seccomp profile for Docker sandboxes, or unconfined to filter no system call: it may allow more (default Fumehood's own)")
	root.PersistentFlags().StringVar(&a.runtime, "runtime", "", "the `name` of the container runtime of Docker sandboxes, such as runsc for gVisor; no file replaces it by one that isolates less (default the daemon's)")
	markSettings(root.PersistentFlags(), "provider", "strict-prereqs", "transport", "default-image", "log-format", "log-level", "no-reaper", "seccomp", "runtime", "allow-unenforced-limits")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError("%w", err) })
	root.AddCommand(
		a.newRunCommand(runSandbox), a.newUpCommand(runUp), a.newPsCommand(), a.newExecCommand(runExec), a.newProcessCommand(), a.newCpCommand(runCp),
		a.newLogsCommand(), a.newShellCommand(), a.newConnectCommand(), a.newForwardCommand(), a.newConfigCommand(showConfig), a.newDownCommand(),
		a.newSessionCommand(), a.newEvalCommand(runEval), a.newRunsCommand(), a.newSnapshotCommand(), a.newImageCommand(), a.newCleanupCommand(), a.newDoctorCommand(), a.newVersionCommand(),
	)
	completeHelp(root)
	return root
}
