package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/spec"
	"github.com/fumehood/fumehood/workspace"
)

func (a *commandLine) newSessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Run a workspace's code in the environment that a spec describes",
		Long: `Session runs the code of a workspace as an environment spec says: image, set-up,
mounts, variables, command. docs/session.md tells what a session is.`,
		Example: `  fumehood session run env.yaml --workspace work`,
	}
	cmd.AddCommand(a.newSessionRunCommand())
	return cmd
}

// sessionOptions are what `fumehood session run` was asked to do.
type sessionOptions struct {
	app.SessionOptions
	json    bool
	journal journalFlag
}

// sessionFlags are the flags as they were typed.
type sessionFlags struct {
	workspace, resume, entry, command, out, assets, image, user, setup string
	env, mounts, ports                                                 []string
	eval, json, stdin, noSetup                                         bool
	timeout                                                            time.Duration
	journal                                                            journalFlag
	allow                                                              allowFlags
	limits                                                             limitFlags
}

func (a *commandLine) newSessionRunCommand() *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use:   "run SPEC",
		Short: "Run the spec's command once, over a copy of a workspace",
		Long: `Run copies the workspace, runs the spec's set-up and command over the copy, in
one shell, and removes the copy. --snapshot-out keeps what became of it. An
image that the spec says how to build is built if it is not up to date. A
workspace over --max-size or --max-entries is an error, before and afterwards.

Standard output is the command's; what the set-up writes goes to standard error.
The command's standard input is empty without --stdin. The exit code is the
command's own; one of a set-up that ended before the command comes with a
message, and 125 stands for its 0. The spec says which provider it is, whatever
--provider says.

In --command, --setup and the values of --env, {{static:NAME}} stands for the
path at which the command finds what is called NAME in the folder of --assets.`,
		Example: `  fumehood session run env.yaml --workspace work --entry main
  fumehood session run env.yaml --workspace work --snapshot-out after.tar.gz
  fumehood session run env.yaml --resume after.tar.gz --eval --json
  fumehood session run env.yaml --workspace work --eval --assets tests \
      --command 'python3 {{static:check.py}}'`,
		Args: wantArguments("SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := f.options(cmd.Flags().Changed("entry"))
			if err != nil {
				return usageError("%w", err)
			}
			if opts.Open.Limits, err = f.limits.limits(); err != nil {
				return err
			}
			if opts.Open.Environment, err = spec.Load(args[0]); err != nil {
				return err
			}
			f.allow.over(opts.Open.Environment)
			if opts.Open.Assets, err = assetsIn(f.assets); err != nil {
				return err
			}
			if f.stdin {
				opts.Execute.Stdin = a.In
			}
			return a.runSession(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.workspace, "workspace", "", "the `folder` that is copied")
	flags.StringVar(&f.resume, "resume", "", "a snapshot's `file` to begin with, in the workspace's place")
	flags.StringVar(&f.entry, "entry", "main", "the `entry` that is run, as the spec's entry_file names its file")
	flags.StringVar(&f.command, "command", "", "run this shell `text` in the place of the spec's command and entry")
	flags.BoolVar(&f.eval, "eval", false, "evaluate: run eval_commands too, as the spec's user, else HUID:HGID of the environment, else this machine's")
	flags.StringVar(&f.assets, "assets", "", "give it what is in this `folder`: an agent as copies in the workspace, --eval read-only in /static")
	flags.BoolVar(&f.stdin, "stdin", false, "pass standard input on to the command; its output then comes when it has ended")
	flags.StringVar(&f.setup, "setup", "", "run this shell `text` after the spec's set-up, in the same shell")
	flags.BoolVar(&f.noSetup, "no-setup", false, "run the command by /bin/sh -c, without any set-up")
	flags.StringVar(&f.image, "image", "", "the `image`, in the place of the spec's")
	flags.StringVarP(&f.user, "user", "u", "", "the `user`, in the place of the spec's: name, uid, or either with :group")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set a `variable` over the spec's, NAME=VALUE, or pass on this process's, NAME")
	flags.StringArrayVarP(&f.mounts, "volume", "v", nil, "`mount` a path of this machine over the spec's, HOST:SANDBOX[:ro|:rw], read-only if not said")
	flags.StringArrayVarP(&f.ports, "publish", "p", nil, "publish a `port` on the loopback address, [HOST:]SANDBOX; without HOST on a free one")
	flags.DurationVar(&f.timeout, "timeout", 0, "end the command after this `time`, such as 90s (default: no limit); the set-up has the spec's")
	flags.StringVar(&f.out, "snapshot-out", "", "write a snapshot of the workspace as it is afterwards to this `file`, which is replaced")
	flags.BoolVar(&f.json, "json", false, "print a JSON object with outcome, exit code and output instead of the output")
	f.allow.add(flags, "spec")
	f.limits.add(flags)
	f.journal.add(flags)
	return cmd
}

// options checks the flags and turns them into what to do.
func (f *sessionFlags) options(entry bool) (o sessionOptions, err error) {
	switch {
	case (f.workspace == "") == (f.resume == ""):
		return o, errors.New("session run needs --workspace DIR or --resume FILE")
	case f.eval && f.out != "":
		return o, errors.New("--snapshot-out is for agents, not for --eval")
	case f.timeout < 0:
		return o, fmt.Errorf("--timeout %v is negative", f.timeout)
	case f.command != "" && entry:
		return o, errors.New("--command and --entry exclude each other")
	case f.setup != "" && f.noSetup:
		return o, errors.New("--setup and --no-setup exclude each other")
	}
	o.json, o.journal, o.SnapshotOut = f.json, f.journal, f.out
	o.Open = session.Options{
		Kind: session.Agent, Workspace: f.workspace, Snapshot: f.resume, AssetDir: f.assets,
		HUID: os.Getenv("HUID"), HGID: os.Getenv("HGID"),
	}
	o.Spawn = session.SpawnOptions{Image: f.image, User: f.user, Setup: f.setup, DisableSetup: f.noSetup}
	o.Execute = session.ExecuteOptions{Command: f.command, Entry: f.entry, Timeout: f.timeout}
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

// parsePort reads [HOST:]SANDBOX.
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

// assetsIn makes an asset of each file and folder in dir, by its name.
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

// sessionJSON is the object that `fumehood session run --json` prints.
type sessionJSON struct {
	Outcome     *string            `json:"outcome"`
	ExitCode    *int               `json:"exit_code"`
	SetupEnded  bool               `json:"setup_ended"` // the script ended before the command began
	Usage       fumehood.Usage     `json:"usage,omitzero"`
	SetupStdout *outputJSON        `json:"setup_stdout"`
	SetupStderr *outputJSON        `json:"setup_stderr"`
	Stdout      *outputJSON        `json:"stdout"`
	Stderr      *outputJSON        `json:"stderr"`
	ElapsedMS   float64            `json:"elapsed_ms"`
	Changes     []workspace.Change `json:"changes,omitempty"` // with --snapshot-out: what became of the workspace
	Error       *errorJSON         `json:"error"`
}

func (a *commandLine) runSession(ctx context.Context, o sessionOptions) error {
	var obj sessionJSON
	if o.json {
		debug.SetGCPercent(holdingOutputs)
	}
	res, err := a.inSession(ctx, o)
	if o.json {
		obj.Error = describe(err)
		if res.Result != nil {
			obj.fill(res.Result)
		}
		if res.Snapshot != nil {
			obj.Changes = res.Snapshot.Changes
		}
		if jerr := writeJSON(a.Out, obj, obj.SetupStdout, obj.SetupStderr, obj.Stdout, obj.Stderr); jerr != nil {
			return jerr
		}
	}
	if err != nil {
		return err
	}
	return a.sessionVerdict(o, res.Result)
}

func (obj *sessionJSON) fill(res *session.Result) {
	outcome := string(res.Outcome)
	obj.Outcome, obj.ExitCode, obj.SetupEnded, obj.ElapsedMS = &outcome, &res.ExitCode, res.SetupEnded, ms(res.Elapsed)
	obj.SetupStdout, obj.SetupStderr = outputOf(res.SetupStdout), outputOf(res.SetupStderr)
	obj.Stdout, obj.Stderr = outputOf(res.Stdout), outputOf(res.Stderr)
	obj.Usage = res.Usage
}

// inSession runs the command, and shows its output where no JSON is asked for.
func (a *commandLine) inSession(ctx context.Context, o sessionOptions) (app.SessionResult, error) {
	journal, file, err := a.openJournal(o.journal)
	if err != nil {
		return app.SessionResult{}, err
	}
	defer file.Close()
	o.Open.Journal = journal
	o.Published = func(ports []fumehood.Port) {
		for _, p := range ports {
			a.tell("port %d is published at 127.0.0.1:%d", p.Container, p.Host)
		}
	}
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

// showSession prints what was kept of the output.
func (a *commandLine) showSession(res *session.Result) error {
	for _, o := range []struct {
		to  io.Writer
		out fumehood.Output
	}{{a.Err, res.SetupStdout}, {a.Err, res.SetupStderr}, {a.Out, res.Stdout}, {a.Err, res.Stderr}} {
		if o.out.Truncated() {
			a.tell("of %d bytes of output, these are the last %d", o.out.Total, len(o.out.Bytes))
		}
		if _, err := o.to.Write(o.out.Bytes); err != nil {
			return outputError(err)
		}
	}
	return nil
}

// showEvent passes output on, the set-up's to standard error.
func (a *commandLine) showEvent(ev session.Event) error {
	if ev.Phase == session.Command {
		return a.show(ev.Stream, ev.Data)
	}
	return a.show(fumehood.Stderr, ev.Data)
}

// sessionVerdict is verdict for a session's command.
func (a *commandLine) sessionVerdict(o sessionOptions, res *session.Result) error {
	switch {
	case res.SetupEnded && res.TimedOut():
		return &exitError{code: exitTimeout, err: fmt.Errorf("the set-up timed out after %v", o.Open.Environment.WithDefaults().Setup.Timeout)}
	case res.SetupEnded && res.Outcome == fumehood.Exited:
		code := res.ExitCode
		if code == 0 {
			code = exitFailure
		}
		return &exitError{code: code, err: fmt.Errorf("the set-up ended with code %d before the command began", res.ExitCode)}
	}
	return a.verdict(
		runOptions{cmd: fumehood.Cmd{Timeout: o.Execute.Timeout}, spec: app.Described{Spec: fumehood.Spec{Limits: fumehood.Limits(o.Open.Environment.Limits)}}},
		&fumehood.Result{Outcome: res.Outcome, ExitCode: res.ExitCode, Reason: res.Reason},
	)
}
