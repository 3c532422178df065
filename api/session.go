package api

import (
	"encoding/json"
	"errors"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

// SessionOptions describe a session to open: a private copy of a workspace, and where code runs over it.
type SessionOptions struct {
	Environment string           `json:"environment,omitempty" doc:"text of an environment spec, in YAML or JSON; empty means that in file"`
	File        string           `json:"file,omitempty" doc:"path of the spec; paths in the spec are relative to its folder"`
	Kind        session.Kind     `json:"kind" enum:"agent,evaluation"`
	Workspace   string           `json:"workspace,omitempty" doc:"folder to copy; this or snapshot"`
	Snapshot    string           `json:"snapshot,omitempty" doc:"snapshot to restore"`
	AssetDir    string           `json:"asset_dir,omitempty" doc:"folder that the paths of assets are relative to"`
	Assets      map[string]Asset `json:"assets,omitempty" doc:"by name"`
	Inputs      []Input          `json:"inputs,omitempty" doc:"files to write into the workspace"`
	Limits      *WorkspaceLimits `json:"limits,omitempty" doc:"of the workspace"`
	HUID        string           `json:"huid,omitempty" doc:"user of evaluations whose spec names none; empty means the server's"`
	HGID        string           `json:"hgid,omitempty" doc:"group of evaluations whose spec names none"`
	AllowRead   []string         `json:"allow_read,omitempty" doc:"paths outside the spec's folder that the spec may read"`
	AllowUnsafe bool             `json:"allow_unsafe,omitempty" doc:"allow what breaks the isolation"`
}

// Asset is a file or folder for the code of a session.
type Asset struct {
	Path     string `json:"path" doc:"relative to the folder of assets"`
	SavePath string `json:"save_path,omitempty" doc:"where the code finds it; empty means path"`
}

// Input is a file to write into a workspace.
type Input struct {
	Path    Text   `json:"path" doc:"relative to the workspace"`
	Content []byte `json:"content" doc:"in base64"`
	Mode    int    `json:"mode,omitempty" minimum:"0" maximum:"511" doc:"permission bits; 0 means 0644, 420"`
}

// WorkspaceLimits bound a workspace. 0 means the default, -1 no limit.
type WorkspaceLimits struct {
	Bytes   int64 `json:"bytes,omitempty" minimum:"-1" doc:"of all files; default 10 GiB"`
	Stored  int64 `json:"stored,omitempty" minimum:"-1" doc:"bytes of a snapshot before compression; default bytes"`
	Entries int   `json:"entries,omitempty" minimum:"-1" doc:"default a million"`
}

// Options returns the options for package session, without provider and environment.
func (o *SessionOptions) Options() (session.Options, error) {
	opts := session.Options{Kind: o.Kind, Workspace: o.Workspace, Snapshot: o.Snapshot, AssetDir: o.AssetDir, HUID: o.HUID, HGID: o.HGID}
	if l := o.Limits; l != nil {
		opts.Limits = workspace.Limits(*l)
	}
	assets := map[string]spec.Asset{}
	for name, a := range o.Assets {
		assets[name] = spec.Asset(a)
	}
	opts.Assets = []map[string]spec.Asset{assets}
	for _, in := range o.Inputs {
		content := in.Content
		if content == nil {
			content = []byte{}
		}
		opts.Inputs = append(opts.Inputs, workspace.Input{Path: string(in.Path), Content: content, Mode: Mode(in.Mode)})
	}
	return opts, nil
}

// Session describes an open session.
type Session struct {
	ID        string       `json:"id"`
	Kind      session.Kind `json:"kind"`
	Workspace string       `json:"workspace" doc:"the private copy, on the server's machine"`
}

// SpawnOptions override the spec of a session for one runtime.
type SpawnOptions struct {
	Ports        []fumehood.Port  `json:"ports,omitempty" doc:"TCP ports, published on the loopback of the server's machine"`
	Mounts       []fumehood.Mount `json:"mounts,omitempty"`
	Env          Env              `json:"env,omitempty"`
	Image        string           `json:"image,omitempty"`
	User         string           `json:"user,omitempty"`
	Setup        string           `json:"setup,omitempty" doc:"shell text that runs after the spec's setup"`
	DisableSetup bool             `json:"disable_setup,omitempty"`
}

// Options returns the options for package session.
func (o *SpawnOptions) Options() (session.SpawnOptions, error) {
	opts := session.SpawnOptions{Mounts: o.Mounts, Env: o.Env, Image: o.Image, User: o.User, Setup: o.Setup, DisableSetup: o.DisableSetup}
	for _, p := range o.Ports {
		err := p.Validate()
		if err == nil && (p.Address != "" || p.Protocol == fumehood.ProtocolUDP) {
			err = errors.New("a session publishes TCP ports on the loopback only")
		}
		if err != nil {
			return opts, &fumehood.Error{Op: "read request", Class: fumehood.ErrConfig, Err: err}
		}
		opts.Ports = append(opts.Ports, spec.Port{Host: uint16(p.Host), Container: uint16(p.Container)}) //nolint:gosec // validated
	}
	return opts, nil
}

// Runtime describes a container of a session, which is also a sandbox.
type Runtime struct {
	ID       string               `json:"id" doc:"also the id of the sandbox, for files and further commands"`
	Service  fumehood.ServiceInfo `json:"service"`
	ExitCode *int                 `json:"exit_code" doc:"of the last command that has ended; null while one runs, and before the first"`
	Reason   string               `json:"provider_reason,omitempty" doc:"why the server has this provider, if it is because the Docker Engine refuses its user"`
}

// Execute is a command for a runtime.
type Execute struct {
	Command   Text     `json:"command,omitempty" doc:"shell text; empty means the spec's command line for entry"`
	Entry     Text     `json:"entry,omitempty"`
	Stdin     [][]byte `json:"stdin,omitempty" doc:"pieces of the standard input in base64, which are sent one by one"`
	Timeout   float64  `json:"timeout_ms,omitempty" minimum:"0" doc:"milliseconds from the setup's end; 0 means no limit"`
	CPUTime   float64  `json:"cpu_time_ms,omitempty" minimum:"0" doc:"milliseconds of processor time of setup and command, as of a command; 0 means no limit"`
	Env       Env      `json:"env,omitempty"`
	StdoutCap int64    `json:"stdout_cap,omitempty" minimum:"-1" doc:"as of a command"`
	StderrCap int64    `json:"stderr_cap,omitempty" minimum:"-1" doc:"as of a command"`
}

// Options returns the options for package session.
func (o *Execute) Options() session.ExecuteOptions {
	opts := session.ExecuteOptions{Command: string(o.Command), Entry: string(o.Entry), Timeout: Duration(o.Timeout), CPUTime: Duration(o.CPUTime), Env: o.Env, StdoutCap: o.StdoutCap, StderrCap: o.StderrCap}
	if len(o.Stdin) > 0 {
		opts.Stdin = session.Chunks(o.Stdin...)
	}
	return opts
}

// SessionResult describes how a command of a session ended. Its JSON has the fields of both parts in one object.
type SessionResult struct {
	fumehood.Result
	SetupResult
}

// SetupResult has what a SessionResult adds to a Result.
type SetupResult struct {
	SetupEnded  bool            `json:"setup_ended" doc:"the script ended in its setup, before the command began"`
	SetupStdout fumehood.Output `json:"setup_stdout"`
	SetupStderr fumehood.Output `json:"setup_stderr"`
}

// MarshalJSON encodes the result as one object.
func (r SessionResult) MarshalJSON() ([]byte, error) { return jsontext.Join(r.Result, r.SetupResult) }

// UnmarshalJSON decodes a result. Unknown fields are ignored.
func (r *SessionResult) UnmarshalJSON(text []byte) error {
	return errors.Join(json.Unmarshal(text, &r.Result), json.Unmarshal(text, &r.SetupResult))
}

// SessionResultOf returns the JSON form of a result.
func SessionResultOf(r *session.Result) *SessionResult {
	return &SessionResult{
		Result: fumehood.Result{
			Outcome: r.Outcome, ExitCode: r.ExitCode, Signal: r.Signal, Reason: r.Reason, Leaked: r.Leaked, CausedInside: r.CausedInside, Usage: r.Usage, Duration: r.Elapsed,
			Stdout: r.Stdout, Stderr: r.Stderr,
		},
		SetupResult: SetupResult{SetupEnded: r.SetupEnded, SetupStdout: r.SetupStdout, SetupStderr: r.SetupStderr},
	}
}

// SessionEvent is a line of the stream of a session's command. The last one has the type end or error.
type SessionEvent struct {
	Type   string         `json:"type" enum:"output,end,error,heartbeat"`
	Phase  session.Phase  `json:"phase,omitempty" enum:"setup,command" doc:"of output"`
	Stream string         `json:"stream,omitempty" enum:"stdout,stderr" doc:"of output"`
	Data   []byte         `json:"data,omitempty" doc:"output in base64"`
	Result *SessionResult `json:"result,omitempty" doc:"of end"`
	Error  *Error         `json:"error,omitempty"`
}

// Checkpoint describes a saved workspace.
type Checkpoint struct {
	Number   int                `json:"number" doc:"starts at 1"`
	Snapshot string             `json:"snapshot" doc:"path on the server's machine, until the session is closed"`
	Archive  string             `json:"archive,omitempty" doc:"path of the copy in the spec's archive_save_dir"`
	Changes  []workspace.Change `json:"changes" doc:"from the checkpoint before, or from the start"`
}

// CheckpointOf returns the JSON form of a checkpoint.
func CheckpointOf(c *session.Checkpoint) *Checkpoint {
	return &Checkpoint{Number: c.Number, Snapshot: c.Snapshot, Archive: c.Archive, Changes: append([]workspace.Change{}, c.Changes...)}
}
