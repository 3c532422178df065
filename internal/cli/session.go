package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

func (a *commandLine) newSessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Run a workspace's code in the environment of a spec",
		Long: `Session runs the code of a workspace as an environment spec describes: image,
setup, mounts, variables, command. docs/session.md explains sessions.`,
		Example: `  fumehood session check env.yaml
  fumehood session run env.yaml --workspace work`,
	}
	cmd.AddCommand(a.newSessionRunCommand(), a.newSessionStreamCommand(), a.newSessionCheckCommand())
	return cmd
}

// sessionOptions are the options of `fumehood session run`.
type sessionOptions struct {
	app.SessionOptions
	json    bool
	journal journalFlag
}

// sessionFlags are the flags of `fumehood session run`, as typed.
type sessionFlags struct {
	workspace, resume, entry, command, out, assets, image, user, setup string
	env, mounts, ports                                                 []string
	eval, json, stdin, noSetup                                         bool
	timeout, cpuTime                                                   time.Duration
	journal                                                            journalFlag
	allow                                                              allowFlags
	limits                                                             limitFlags
}

func (a *commandLine) newSessionRunCommand() *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use:   "run SPEC",
		Short: "Run the spec's command once, over a copy of a workspace",
		Long: `Run copies the workspace, runs the spec's setup and command in the copy, in one
shell, and removes the copy. --snapshot-out saves the result. An image that the
spec builds is built unless it is up to date. A workspace that exceeds a limit
before or after the command is an error.

The output of the setup goes to standard error. The exit code is the command's
own. If the setup ends before the command starts, a message is printed and the
exit code is the setup's, or 125 if that is 0. If the spec has the type docker,
--provider chooses among the providers that run images: auto, docker, native.

In --command, --setup and --env, {{static:NAME}} is replaced by
the path where the command finds NAME of the folder given by --assets.`,
		Example: `  fumehood session run env.yaml --workspace work --entry main
  fumehood session run env.yaml --workspace work --snapshot-out after.tar.gz
  fumehood session run env.yaml --resume after.tar.gz --eval --json
  fumehood session run env.yaml --workspace work --eval --assets tests \
      --command 'python3 {{static:check.py}}'`,
		Args: wantArguments("SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.command != "" && cmd.Flags().Changed("entry") {
				return usageError("--command and --entry exclude each other")
			}
			opts, err := f.load("session run", args[0])
			if err != nil {
				return err
			}
			if f.stdin {
				opts.Execute.Stdin = a.In
			}
			return a.runSession(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.StringVar(&f.entry, "entry", "main", "the `entry` to run; the spec's entry_file names its file")
	flags.StringVar(&f.command, "command", "", "run this shell `text` instead of the spec's command and entry")
	flags.BoolVar(&f.stdin, "stdin", false, "pass standard input on, and print the output only when the command has ended (default: empty input)")
	flags.DurationVar(&f.timeout, "timeout", 0, "kill the command after this `time`, such as 90s (default: no limit); the setup has the spec's timeout")
	flags.DurationVar(&f.cpuTime, "cpu-time", 0, "limit the processor `time` of setup and command with their descendants together, such as 10s (default: no limit)")
	flags.BoolVar(&f.json, "json", false, "print a JSON object with outcome, output and errors")
	return cmd
}

// add declares the flags that define a session and its runtime.
func (f *sessionFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.workspace, "workspace", "", "the `folder` to copy as the workspace")
	flags.StringVar(&f.resume, "resume", "", "a snapshot `file` to start from instead of a workspace")
	flags.BoolVar(&f.eval, "eval", false, "evaluate: also run eval_commands, as the spec's user, else as HUID:HGID of the environment, else as this user")
	flags.StringVar(&f.assets, "assets", "", "provide the contents of this `folder`: copied into the workspace, or with --eval read-only in /static")
	flags.StringVar(&f.setup, "setup", "", "run this shell `text` after the spec's setup, in the same shell")
	flags.BoolVar(&f.noSetup, "no-setup", false, "run the command by /bin/sh -c, without any setup")
	flags.StringVar(&f.image, "image", "", "the `image` to use instead of the spec's")
	flags.StringVarP(&f.user, "user", "u", "", "the `user` to run as instead of the spec's: name, uid, or either with :group")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set a `variable` with NAME=VALUE, or pass on this process's with NAME; overrides the spec's")
	flags.StringArrayVarP(&f.mounts, "volume", "v", nil, "`mount` a path of this machine, HOST:SANDBOX[:ro|:rw] (default: read-only); overrides the spec's")
	flags.StringArrayVarP(&f.ports, "publish", "p", nil, "publish a `port` on the loopback address, [HOST:]SANDBOX (default: a free host port)")
	flags.StringVar(&f.out, "snapshot-out", "", "write a snapshot of the workspace after the command to this `file`, replacing it")
	f.allow.add(flags, "spec")
	f.limits.add(flags)
	f.journal.add(flags)
}

// load checks the flags, reads the spec, and returns the options of the session.
func (f *sessionFlags) load(command, file string) (o sessionOptions, err error) {
	if o, err = f.options(command); err != nil {
		return o, usageError("%w", err)
	}
	if o.Open.Limits, err = f.limits.limits(); err != nil {
		return o, err
	}
	if o.Open.Environment, err = spec.Load(file); err != nil {
		return o, err
	}
	f.allow.over(o.Open.Environment)
	o.Open.Assets, err = assetsIn(f.assets)
	return o, err
}

// options checks the flags and returns the options of the session. Command is the name of the command, for errors.
func (f *sessionFlags) options(command string) (o sessionOptions, err error) {
	switch {
	case (f.workspace == "") == (f.resume == ""):
		return o, fmt.Errorf("%s needs --workspace DIR or --resume FILE", command)
	case f.eval && f.out != "":
		return o, errors.New("--snapshot-out cannot be combined with --eval")
	case f.timeout < 0:
		return o, fmt.Errorf("--timeout %v is negative", f.timeout)
	case f.cpuTime < 0:
		return o, fmt.Errorf("--cpu-time %v is negative", f.cpuTime)
	case f.setup != "" && f.noSetup:
		return o, errors.New("--setup and --no-setup exclude each other")
	}
	o.json, o.journal, o.SnapshotOut = f.json, f.journal, f.out
	o.Open = session.Options{
		Kind: session.Agent, Workspace: f.workspace, Snapshot: f.resume, AssetDir: f.assets,
		HUID: os.Getenv("HUID"), HGID: os.Getenv("HGID"),
	}
	o.Spawn = session.SpawnOptions{Image: f.image, User: f.user, Setup: f.setup, DisableSetup: f.noSetup}
	o.Execute = session.ExecuteOptions{Command: f.command, Entry: f.entry, Timeout: f.timeout, CPUTime: f.cpuTime}
	if f.eval {
		o.Open.Kind = session.Evaluation
	}
	if o.Spawn.Env, err = parseEnv(f.env, os.LookupEnv); err != nil {
		return o, err
	}
	for _, m := range f.mounts {
		mount, err := parseMount(m)
		if err != nil {
			return o, err
		}
		o.Spawn.Mounts = append(o.Spawn.Mounts, mount)
	}
	for _, p := range f.ports {
		port, err := parsePort(p)
		if err != nil {
			return o, err
		}
		o.Spawn.Ports = append(o.Spawn.Ports, port)
	}
	return o, nil
}

// parsePort parses [HOST:]SANDBOX. Without HOST, the host port is 0.
func parsePort(s string) (spec.Port, error) {
	host, inside, both := strings.Cut(s, ":")
	if !both {
		host, inside = "0", s
	}
	h, herr := strconv.ParseUint(host, 10, 16)
	c, cerr := strconv.ParseUint(inside, 10, 16)
	if herr != nil || cerr != nil || c == 0 {
		return spec.Port{}, fmt.Errorf("--publish %q is not [HOST:]SANDBOX, with ports up to 65535", s)
	}
	return spec.Port{Host: uint16(h), Container: uint16(c)}, nil
}

// assetsIn returns each file and folder in dir as an asset with its name, or nil if dir is empty.
func assetsIn(dir string) ([]map[string]spec.Asset, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &fumehood.Error{Op: "read the assets", Class: fumehood.ErrConfig, Err: err}
	}
	assets := map[string]spec.Asset{}
	for _, e := range entries {
		assets[e.Name()] = spec.Asset{Path: e.Name()}
	}
	return []map[string]spec.Asset{assets}, nil
}

// noSessionResult are the fields of a session's result that are null if no command ran to its end.
const noSessionResult = `{"setup_ended":false,"setup_stdout":null,"setup_stderr":null}`

func (a *commandLine) runSession(ctx context.Context, o sessionOptions) error {
	if o.json {
		debug.SetGCPercent(holdingOutputs)
	}
	res, err := a.inSession(ctx, o)
	if o.json {
		values := []any{json.RawMessage(noResult), json.RawMessage(noSessionResult)}
		if res.Result != nil {
			values = []any{api.SessionResultOf(res.Result)}
		}
		if res.Snapshot != nil {
			values = append(values, struct {
				Changes []workspace.Change `json:"changes,omitempty"`
			}{res.Snapshot.Changes})
		}
		if jerr := writeJSON(a.Out, append(values, failure{describe(err)})...); jerr != nil {
			return jerr
		}
	}
	if err != nil {
		return err
	}
	return a.sessionVerdict(o, res.Result)
}

// tellPorts reports the published ports.
func (a *commandLine) tellPorts(ports []fumehood.Port) {
	for _, p := range ports {
		a.tell("port %d is published at 127.0.0.1:%d", p.Container, p.Host)
	}
}

// inSession runs the command. Without --json it prints the output.
func (a *commandLine) inSession(ctx context.Context, o sessionOptions) (app.SessionResult, error) {
	journal, file, err := a.openJournal(o.journal)
	if err != nil {
		return app.SessionResult{}, err
	}
	defer file.Close()
	o.Open.Journal, o.Published = journal, a.tellPorts
	switch {
	case o.json:
	case o.Execute.Stdin != nil:
		o.Ended = a.showSession
	default:
		o.Show = a.showEvent
	}
	res, err := a.actions().RunSession(ctx, o.SessionOptions)
	if err == nil && res.Snapshot != nil && !o.json {
		a.tell("%s: %s", o.SnapshotOut, summary(res.Snapshot.Manifest))
	}
	return res, err
}

// showSession prints the kept output.
func (a *commandLine) showSession(res *session.Result) error {
	for _, o := range []struct {
		to  io.Writer
		out fumehood.Output
	}{{a.Err, res.SetupStdout}, {a.Err, res.SetupStderr}, {a.Out, res.Stdout}, {a.Err, res.Stderr}} {
		if o.out.Truncated() {
			a.tell("output of %d bytes: only the last %d are kept", o.out.Total, len(o.out.Bytes))
		}
		if _, err := o.to.Write(o.out.Bytes); err != nil {
			return outputError(err)
		}
	}
	return nil
}

// showEvent passes output on. The setup's output goes to standard error.
func (a *commandLine) showEvent(ev session.Event) error {
	if ev.Phase == session.Command {
		return a.show(ev.Stream, ev.Data)
	}
	return a.show(fumehood.Stderr, ev.Data)
}

// sessionVerdict maps a session's result to our exit code, as verdict does, including a setup that ended early.
func (a *commandLine) sessionVerdict(o sessionOptions, res *session.Result) error {
	switch {
	case res.SetupEnded && res.TimedOut():
		return &exitError{code: exitTimeout, err: fmt.Errorf("the setup timed out after %v", o.Open.Environment.WithDefaults().Setup.Timeout)}
	case res.SetupEnded && res.Outcome == fumehood.Exited:
		code := res.ExitCode
		if code == 0 {
			code = exitFailure
		}
		return &exitError{code: code, err: fmt.Errorf("the setup ended with code %d before the command started", res.ExitCode)}
	}
	return a.verdict(
		runOptions{cmd: fumehood.Cmd{Timeout: o.Execute.Timeout, CPUTime: o.Execute.CPUTime}, spec: app.Described{Spec: fumehood.Spec{Limits: fumehood.Limits(o.Open.Environment.Limits)}}},
		&fumehood.Result{Outcome: res.Outcome, ExitCode: res.ExitCode, Reason: res.Reason},
	)
}
