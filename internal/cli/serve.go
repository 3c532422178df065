package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/server"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// serveOptions are the options of `fumehood serve`.
type serveOptions struct {
	socket, listen, tokenFile string
	tls                       server.TLS
	stdio                     bool
	hosts                     []string
	permit                    server.Permit
	limits                    server.Limits
	memory, body, upload      string
	drain                     time.Duration
}

func (a *commandLine) newServeCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve sandboxes over HTTP, for programs in other languages",
		Long: `Serve answers HTTP requests on a unix socket that only this user can reach:
sandboxes, commands, files, sessions, evaluations. docs/server.md describes the
API, and docs/openapi.json has its OpenAPI document.

Clients hold what they start by a lease. A client that ends, or is killed,
loses its sandboxes after 5 seconds; serve removes all sandboxes when it ends.

With --listen it serves TCP instead, and requests need the bearer token in
--token-file, or the one that is printed. Addresses that other machines
reach need TLS. With --stdio it serves a private socket, prints its address as
a line of JSON, and ends when its standard input closes.

A client may start sandboxes that reach nothing outside. Networks, paths of
this machine, kept sandboxes and unsafe settings need a flag.`,
		Example: `  fumehood serve
  curl --unix-socket $XDG_RUNTIME_DIR/fumehood.sock http://localhost/v1/version
  fumehood serve --listen 127.0.0.1:8420 --token-file token --max-memory 4GiB`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.socket, "socket", "", "`path` of the unix socket (default: fumehood.sock in $XDG_RUNTIME_DIR, else in ~/.local/state/fumehood/server)")
	flags.StringVar(&o.listen, "listen", "", "serve TCP at this `address`, IP:PORT, instead of a socket")
	flags.StringVar(&o.tokenFile, "token-file", "", "`file` with the bearer token for --listen (default: a new token, printed once)")
	flags.StringVar(&o.tls.Cert, "tls-cert", "", "`file` with the certificate, in PEM")
	flags.StringVar(&o.tls.Key, "tls-key", "", "`file` with the certificate's key, in PEM")
	flags.BoolVar(&o.stdio, "stdio", false, "serve a private socket until standard input closes")
	flags.StringArrayVar(&o.hosts, "host", nil, "`name` by which clients reach --listen, as in the header Host with its port; may be repeated")
	flags.BoolVar(&o.permit.Egress, "allow-egress", false, "clients may request networks, and Compose projects")
	flags.BoolVar(&o.permit.Unsafe, "allow-unsafe", false, "clients may request what breaks the isolation")
	flags.BoolVar(&o.permit.Kept, "allow-kept", false, "clients may start sandboxes that outlive them, and use all kept ones")
	flags.StringArrayVar(&o.permit.HostPaths, "allow-host-path", nil, "`path` of this machine that clients may name, with all below it; may be repeated")
	flags.StringArrayVar(&o.permit.Images, "allow-image", nil, "`pattern` of images that clients may use, such as 'python:*' (default: all); may be repeated")
	flags.IntVar(&o.limits.Sandboxes, "max-sandboxes", 0, "`number` of sandboxes at a time (default 1000)")
	flags.IntVar(&o.limits.Commands, "max-commands", 0, "`number` of commands at a time (default 1000)")
	flags.IntVar(&o.limits.Streams, "max-streams", 0, "`number` of streams to ports of sandboxes at a time (default 1000)")
	flags.DurationVar(&o.limits.Idle, "idle", 0, "remove a sandbox that has had no call and no running command for this `time`, such as 1h (default: never)")
	flags.DurationVar(&o.drain, "drain", 0, "when a signal ends the server, start no sandboxes and wait for those of clients, for this `time` at most; a second signal ends it at once")
	flags.StringVar(&o.memory, "max-memory", "", "highest memory limit of a sandbox, a `size` (default: any)")
	flags.StringVar(&o.body, "max-body", "", "maximum `size` of a request's JSON (default 64MiB)")
	flags.StringVar(&o.upload, "max-upload", "", "maximum `size` of an uploaded file (default 4GiB)")
	return cmd
}

// check checks the flags that contradict each other, and parses sizes.
func (o *serveOptions) check() error {
	given := 0
	for _, set := range []bool{o.socket != "", o.listen != "", o.stdio} {
		if set {
			given++
		}
	}
	switch {
	case given > 1:
		return usageError("--socket, --listen and --stdio exclude each other")
	case o.listen == "" && (o.tokenFile != "" || len(o.hosts) > 0 || o.tls != server.TLS{}):
		return usageError("--token-file, --host, --tls-cert and --tls-key are for --listen")
	case o.limits.Sandboxes < 0 || o.limits.Commands < 0 || o.limits.Streams < 0 || o.limits.Idle < 0 || o.drain < 0:
		return usageError("a limit is negative")
	}
	for flag, to := range map[string]struct {
		text string
		size *int64
	}{"max-memory": {o.memory, &o.limits.Memory}, "max-body": {o.body, &o.limits.Body}, "max-upload": {o.upload, &o.limits.Upload}} {
		if to.text == "" {
			continue
		}
		var err error
		if *to.size, err = spec.ParseSize(to.text); err != nil || *to.size <= 0 {
			return usageError("--%s %q is not a size such as 512MiB", flag, to.text)
		}
	}
	for i, path := range o.permit.HostPaths {
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		o.permit.HostPaths[i] = abs
	}
	for _, pattern := range o.permit.Images {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return usageError("--allow-image %q is not a pattern", pattern)
		}
	}
	return nil
}

func (a *commandLine) serve(ctx context.Context, o serveOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	token, err := o.token()
	if err != nil {
		return err
	}
	access := slog.LevelInfo
	if o.stdio { // its one client knows
		access = slog.LevelDebug
	}
	s := server.New(ctx, server.Options{
		Open: func(ctx context.Context, report func(provider.Progress)) (fumehood.Provider, error) {
			a.pulled = report
			return a.openProvider(ctx, a.provider)
		},
		Reason: func() string { return a.refused },
		Local:  a.provider == spec.TypeLocal, Version: programVersion(), Token: token, Hosts: o.hosts, Permit: o.permit, Limits: o.limits, Logger: a.log, AccessLevel: access,
	})
	ctx, stop := a.drainLater(ctx, s, o)
	defer stop()
	var l net.Listener
	switch {
	case o.stdio:
		path, remove, err := server.PrivateSocket(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		if l, err = server.ListenUnix(ctx, path); err != nil {
			return err
		}
		hello := api.Hello{Address: "unix:" + path, Version: api.Version{Version: programVersion(), API: api.Number, Instance: s.Instance()}}
		if err := json.NewEncoder(a.Out).Encode(hello); err != nil {
			return err
		}
		go func() {
			defer stop()
			_, _ = io.Copy(io.Discard, a.In) // an error is an end too
		}()
	case o.listen != "":
		if l, err = server.ListenTCP(ctx, o.listen, o.tls); err != nil {
			return err
		}
		if o.tokenFile == "" {
			if _, err := fmt.Fprintln(a.Out, token); err != nil {
				return err
			}
		}
		a.tell("serving %s", l.Addr())
	default:
		path := o.socket
		if path == "" {
			if path, err = server.SocketPath(); err != nil {
				return err
			}
		}
		if l, err = server.ListenUnix(ctx, path); err != nil {
			return err
		}
		a.tell("serving %s", path)
	}
	return s.Serve(ctx, server.QuietListener(l))
}

// drainLater returns a context that ends when the server has drained after the end of ctx.
func (a *commandLine) drainLater(ctx context.Context, s *server.Server, o serveOptions) (context.Context, context.CancelFunc) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	undo := context.AfterFunc(ctx, func() {
		defer stop()
		if o.drain > 0 && !o.stdio {
			a.log.Info("draining: no sandboxes are started", "most", o.drain)
			s.Drain(life, o.drain)
		}
	})
	return life, func() { undo(); stop() }
}

const (
	minToken = 16
	maxToken = 4 << 10
)

// token returns the bearer token for --listen: that of the file, or a new one. It is empty for sockets.
func (o *serveOptions) token() (string, error) {
	switch {
	case o.listen == "":
		return "", nil
	case o.tokenFile == "":
		return rand.Text(), nil
	}
	info, err := os.Stat(o.tokenFile)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return "", &fumehood.Error{Op: "read token", Path: o.tokenFile, Class: fumehood.ErrFile, Err: errors.New("other users may read or write the file"), Hint: "chmod 600"}
	}
	text, err := hostpath.ReadFile(o.tokenFile, maxToken)
	if err != nil {
		return "", &fumehood.Error{Op: "read token", Path: o.tokenFile, Class: fumehood.ErrFile, Err: err}
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", &fumehood.Error{Op: "read token", Path: o.tokenFile, Class: fumehood.ErrFile, Err: fmt.Errorf("a token has at least %d printable ASCII characters, and no blank", minToken)}
	}
	return token, nil
}
