// Package cli implements the command line. Each command has its own file, which parses flags into options and
// calls the library. Only this package maps outcomes and errors to exit codes.
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
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
)

// Streams are the program's standard streams.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Exit codes of Fumehood itself, as opposed to those of the program in the sandbox. 124 to 127 are the codes
// of timeout(1), env(1) and the shell.
const (
	exitCheckFailed   = 1 // doctor: a check failed
	exitUsage         = 2 // also for invalid files of the user
	exitTimeout       = 124
	exitFailure       = 125 // Fumehood failed
	exitNotExecutable = 126
	exitNotFound      = 127
	exitMemory        = 137 // the command ran out of memory
	exitSignal        = 128 // plus the signal's number: a signal stopped us
)

// exitError carries an exit code up to Main. If err is nil, no message is printed.
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

// usageError returns an error for wrong usage of the command line. It has exit code exitUsage.
func usageError(format string, a ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, a...)}
}

// commandLine holds the streams, settings and global flags that all commands share.
type commandLine struct {
	Streams
	settings  settings
	log       *slog.Logger
	provider  string
	transport string
	image     string // the default image
	strict    bool
	logFormat string
	logLevel  string
	quiet     bool // see quietly
	noReaper  bool
	seccomp   string // file of a seccomp profile
	runtime   string // container runtime
	userns    bool   // a user namespace for each sandbox
	cluster   cluster
	fleet     fleet
	given     map[string]string // by provider: a flag on the command line that only this one has
	refused   string            // why the Docker Engine refuses this user, where the native provider was taken instead
	pulled    func(provider.Progress)

	allowUnenforced bool // run where limits cannot be enforced
}

// Main runs the command line and returns the exit code. The first SIGINT, SIGTERM or SIGHUP cancels the
// command, which then cleans up; the second exits at once.
func Main(ctx context.Context, args []string, streams Streams) int {
	logrus.SetOutput(io.Discard) // the Compose libraries log here; errors and notes cover what matters
	ctx, stop := onSignal(ctx, func(code int) { os.Exit(code) })
	defer stop()
	return run(ctx, args, streams)
}

func run(ctx context.Context, args []string, streams Streams) int {
	streams.Out = &output{w: streams.Out, ending: ctx.Done()}
	a := &commandLine{Streams: streams, settings: settings{env: os.LookupEnv, configFile: configFile()}}
	a.log = slog.New(newLogHandler(streams.Err, slog.LevelInfo)) // until the flags are parsed
	a.pulled = newPullProgress(a.tell).report
	root := a.rootCommand() //nolint:contextcheck // ExecuteContext passes theirs to commands
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.finish(ctx, cmd.CommandPath(), err)
}

// finish prints err, if any, and returns the exit code. command is the path of the command that was run.
func (a *commandLine) finish(ctx context.Context, command string, err error) int {
	if err == nil {
		return 0
	}
	var byUser *signaled
	if errors.As(context.Cause(ctx), &byUser) && wasCanceled(err) {
		a.complain("ended by "+byUser.name, byUser.exitCode(), err)
		return byUser.exitCode()
	}
	code := exitCode(err)
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return code
	}
	a.complain(err.Error(), code, err)
	if code == exitUsage && !errors.Is(err, fumehood.ErrFile) && a.logFormat != logJSON {
		fmt.Fprintf(a.Err, "Run '%s --help' for its usage.\n", strings.TrimSuffix(command, " help"))
	}
	return code
}

// complain prints to standard error why the program exits with a code of Fumehood's own.
func (a *commandLine) complain(message string, code int, err error) {
	if a.logFormat == logJSON {
		args := []any{"exit_code", code}
		if fumehood.ClassOf(err) != nil || code == exitUsage { // otherwise the command itself failed
			args = append(args, "class", describe(err).Code)
		}
		a.log.Error(message, args...)
		return
	}
	fmt.Fprint(a.Err, addPrefix(message))
}

// addPrefix returns a message of ours as it is printed. Each line begins with our name, so that a text of others in it
// cannot look like a message of its own.
func addPrefix(message string) string {
	return "fumehood: " + strings.ReplaceAll(plain(message), "\n", "\nfumehood: ") + "\n"
}

// wasCanceled reports whether err comes from a cancellation or a signal.
func wasCanceled(err error) bool {
	var sig *signaled
	return errors.Is(err, fumehood.ErrCanceled) || errors.Is(err, context.Canceled) || errors.As(err, &sig)
}

// exitCode maps an error to an exit code.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, fumehood.ErrFile):
		return exitUsage
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
		Long: `Fumehood runs untrusted code in disposable sandboxes: no network, few rights,
bounded memory and processes, nothing left behind.

A setting comes from its flag, else from a variable (FUMEHOOD_IMAGE for
--image), else from $XDG_CONFIG_HOME/fumehood/config.yaml (a line such as
"image: python:3.12-slim"). The daemon is found as by the docker command:
DOCKER_HOST, the current docker context, the rootless daemon's socket, then the
default socket. A cluster is found as by kubectl: KUBECONFIG, ~/.kube/config,
then this Pod's service account.

Exit codes of run: the command's own; 124 timeout; 125 Fumehood failed; 126 or
127 the command could not be started; 2 wrong usage or an invalid file; 130 or
143 interrupted by Ctrl-C or SIGTERM.`,
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
			a.noteFlags(cmd.Flags())
			return a.setUpLog()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.In)
	root.SetOut(a.Out) // before the completion command is created, which reads it at once
	root.SetErr(a.Err)
	root.PersistentFlags().StringVar(&a.provider, "provider", auto, "the `provider` of sandboxes: docker; native, which needs no daemon, on Linux; kubernetes, with a Pod for each; workers, on servers; local, which runs host processes without isolation; or auto, which is workers with --workers, docker if an Engine answers, else native")
	root.PersistentFlags().BoolVar(&a.strict, "strict-prereqs", false, "refuse a Docker Engine that is too old for full isolation, also for builds of the native provider, instead of warning")
	root.PersistentFlags().StringVar(&a.transport, "transport", "", "the `way` commands reach a sandbox: guest, or engine, which trusts nothing in the sandbox but is slower and cannot do everything (default guest)")
	root.PersistentFlags().StringVar(&a.image, "default-image", docker.DefaultImage, "the `image` of sandboxes without one, and the base of builtin images")
	root.PersistentFlags().StringVar(&a.logFormat, "log-format", logText, "the `format` of messages on standard error: text, or json with an object per line")
	root.PersistentFlags().StringVar(&a.logLevel, "log-level", "info", "the lowest `level` of messages to print: debug, info, warn or error")
	root.PersistentFlags().BoolVar(&a.noReaper, "no-reaper", false, "do not start the reaper, a process that removes the sandboxes if this one is killed")
	root.PersistentFlags().BoolVar(&a.allowUnenforced, "allow-unenforced-limits", false, "run sandboxes even if the daemon cannot enforce their limits, for example without control groups")
	root.PersistentFlags().StringVar(&a.seccomp, "seccomp", "", "a `file` with the seccomp profile of sandboxes, which may allow more than Fumehood's own; browsers, for browsers that isolate their own processes; or unconfined to filter no system calls")
	root.PersistentFlags().StringVar(&a.runtime, "runtime", "", "the `name` of the container runtime, such as runsc for gVisor, for the native provider also a program's path, for kubernetes a RuntimeClass; files cannot choose one that isolates less (default the daemon's)")
	root.PersistentFlags().BoolVar(&a.userns, "user-namespace", false, "run each sandbox of the native or kubernetes provider in a user namespace: its root is an unprivileged user of the host")
	a.cluster.add(root.PersistentFlags())
	a.fleet.add(root.PersistentFlags())
	markSettings(root.PersistentFlags(), "provider", "strict-prereqs", "transport", "default-image", "log-format", "log-level", "no-reaper", "seccomp", "runtime", "user-namespace", "allow-unenforced-limits")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError("%w", err) })
	root.AddCommand(
		a.newRunCommand(runSandbox), a.newUpCommand(runUp), a.newPsCommand(), a.newExecCommand(runExec), a.newProcessCommand(), a.newCpCommand(runCp),
		a.newLogsCommand(), a.newShellCommand(), a.newConnectCommand(), a.newForwardCommand(), a.newConfigCommand(showConfig), a.newDownCommand(),
		a.newSessionCommand(), a.newEvalCommand(runEval), a.newRunsCommand(), a.newSnapshotCommand(), a.newImageCommand(), a.newCleanupCommand(), a.newDoctorCommand(), a.newServeCommand(), a.newWorkersCommand(), a.newVersionCommand(),
	)
	completeHelp(root)
	return root
}
