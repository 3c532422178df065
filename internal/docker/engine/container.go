package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// State describes a container, as the Engine reports it.
type State struct {
	ID         string
	Name       string
	Status     string // "created", "running", "exited", "restarting" ...
	Running    bool   // also true while it is restarting
	ExitCode   int
	OOMKilled  bool   // the out-of-memory killer acted in it since its start
	Image      string // the image's reference
	Created    time.Time
	Began      string // when it was last started, in the Engine's notation
	pid        int    // of the main process, on the Engine's machine
	Runtime    string // the name of the container runtime; empty if the Engine doesn't report it
	User       string
	WorkingDir string
	TTY        bool
	Path       string            // the variable PATH of its processes
	Term       bool              // its environment sets the variable TERM
	Labels     map[string]string // of Fumehood's labels only those that the seal proves
	Mounts     []Mount           // by destination
	Ended      bool              // it has ended at least once; if it runs, it was restarted
	Ports      []fumehood.Port   // published ports
	Addresses  []netip.Addr      // in its networks; empty before the first start
	Check      *Check            // its health check; nil without one
	Health     string            // result of the check: Healthy, Unhealthy or "starting"
	Bounding   uint64            // the capabilities that its processes may have, a bit for each
	Found      string            // output and exit code of the last check; empty before the first
}

// Check describes how the Engine checks a container's health, with the Engine's defaults filled in.
type Check struct {
	StartPeriod, Interval, Timeout time.Duration
	Retries                        int
}

// checkOf returns a health check with the Engine's defaults, or nil if there is no check.
func checkOf(h *container.HealthConfig) *Check {
	if h == nil || len(h.Test) == 0 || h.Test[0] == "NONE" {
		return nil
	}
	return &Check{
		StartPeriod: h.StartPeriod, Interval: cmp.Or(h.Interval, 30*time.Second), Timeout: cmp.Or(h.Timeout, 30*time.Second),
		Retries: cmp.Or(h.Retries, 3),
	}
}

// Inspect describes a container by name or id. A container that does not exist is an ErrUnavailable.
func (c *Client) Inspect(ctx context.Context, id string) (State, error) {
	res, err := c.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return State{}, c.translate(err, "inspect container "+id)
	}
	s := State{ID: res.Container.ID, Name: strings.TrimPrefix(res.Container.Name, "/")}
	s.Created, _ = time.Parse(time.RFC3339Nano, res.Container.Created) // zero if not reported
	if st := res.Container.State; st != nil {
		s.Status, s.Running, s.ExitCode, s.OOMKilled, s.Began, s.pid = string(st.Status), st.Running, st.ExitCode, st.OOMKilled, st.StartedAt, st.Pid
		if ended, err := time.Parse(time.RFC3339Nano, st.FinishedAt); err == nil {
			s.Ended = !ended.IsZero()
		}
		if h := st.Health; h != nil {
			s.Health = string(h.Status)
			if n := len(h.Log); n > 0 {
				s.Found = fmt.Sprintf("exit code %d: %s", h.Log[n-1].ExitCode, strings.TrimSpace(h.Log[n-1].Output))
			}
		}
	}
	if cfg := res.Container.Config; cfg != nil {
		s.Image, s.User, s.WorkingDir = cfg.Image, cfg.User, cfg.WorkingDir
		s.Labels, _ = c.secret.open(Container, []string{s.Name}, cfg.Labels)
		s.TTY, s.Check = cfg.Tty, checkOf(cfg.Healthcheck)
		s.Path, _ = lookup(cfg.Env, "PATH")
		_, s.Term = lookup(cfg.Env, "TERM")
	}
	for _, m := range res.Container.Mounts {
		s.Mounts = append(s.Mounts, Mount{At: m.Destination, Source: m.Source, Writable: m.RW})
	}
	if host := res.Container.HostConfig; host != nil {
		for at := range host.Tmpfs {
			s.Mounts = append(s.Mounts, Mount{At: at, Writable: true})
		}
		s.Bounding = bounding(host)
		s.Runtime = host.Runtime
	}
	slices.SortFunc(s.Mounts, func(a, b Mount) int { return strings.Compare(a.At, b.At) })
	if net := res.Container.NetworkSettings; net != nil {
		s.setNetwork(net)
	}
	return s, nil
}

// lookup returns the value of a variable in NAME=value strings.
func lookup(env []string, name string) (value string, set bool) {
	for _, kv := range env {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			value, set = v, true
		}
	}
	return value, set
}

// setNetwork sets the addresses and published ports of a container.
func (s *State) setNetwork(net *container.NetworkSettings) {
	for _, name := range slices.Sorted(maps.Keys(net.Networks)) {
		for _, a := range []netip.Addr{net.Networks[name].IPAddress, net.Networks[name].GlobalIPv6Address} {
			if a.IsValid() {
				s.Addresses = append(s.Addresses, a)
			}
		}
	}
	for port, bindings := range net.Ports {
		for _, b := range bindings {
			if host, err := strconv.Atoi(b.HostPort); err == nil {
				s.Ports = append(s.Ports, fumehood.Port{
					Host: host, Container: int(port.Num()), Protocol: string(port.Proto()), Address: b.HostIP.String(),
				})
			}
		}
	}
}

// lives reports whether the main process of a container runs. A busy Engine reports a container as running for some
// time after that process has died. So lives uses the process list, which is read when it is requested.
func (c *Client) lives(ctx context.Context, id string) (bool, error) {
	s, err := c.Inspect(ctx, id)
	if err != nil || !s.Running {
		return false, err
	}
	state, err := c.process(ctx, id, s.pid)
	return state != "" && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X"), err
}

// process returns the state of a process in a container, in the notation of ps(1). pid is its number on the Engine's
// machine. The state is empty if the process does not exist or the container does not run any more.
func (c *Client) process(ctx context.Context, container string, pid int) (string, error) {
	top, err := c.api.ContainerTop(ctx, container, client.ContainerTopOptions{Arguments: []string{"-o", "pid,stat"}})
	if errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", c.translate(err, "list the processes of container "+container)
	}
	for _, p := range top.Processes {
		if len(p) == 2 && p[0] == strconv.Itoa(pid) {
			return p[1], nil
		}
	}
	return "", nil
}

// maxCounters bounds the Engine's answer about a container's counters, in bytes.
const maxCounters = 1 << 20

// Processes returns how many processes and threads a container has, and their limit; 0 if there is none.
func (c *Client) Processes(ctx context.Context, container string) (n, limit uint64, err error) {
	const op = "count the processes of container "
	res, err := c.api.ContainerStats(ctx, container, client.ContainerStatsOptions{})
	if err != nil {
		return 0, 0, c.translate(err, op+container)
	}
	defer res.Body.Close()
	var stats struct {
		Pids struct {
			Current uint64 `json:"current"`
			Limit   uint64 `json:"limit"`
		} `json:"pids_stats"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxCounters)).Decode(&stats); err != nil {
		return 0, 0, c.translate(err, op+container)
	}
	return stats.Pids.Current, stats.Pids.Limit, nil
}

// created is the status of a container that has not been started.
const created = "created"

// Unavailable returns the error of a call on a container that does not run.
func (s State) Unavailable() error {
	how := fmt.Sprintf("container %s is %s", s.Name, s.Status)
	if s.Status == "exited" {
		how = fmt.Sprintf("container %s has exited with code %d", s.Name, s.ExitCode)
	}
	if s.OOMKilled {
		how += ", after the out-of-memory killer struck"
	}
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("%s", how), Hint: "start a new sandbox"}
}

// StartContainer starts a created container, at most once. If the result is unclear, it inspects the container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := c.api.ContainerStart(ctx, id, client.ContainerStartOptions{})
	if err == nil {
		return nil
	}
	if isUnclear(err) && ctx.Err() == nil {
		if s, ierr := c.Inspect(ctx, id); ierr == nil && s.Status != string(container.StateCreated) {
			return nil
		}
	}
	// Mistakes in the configuration may show only at the start, such as a user that the image does not have.
	if f := startFailure(err.Error()); errors.Is(f, fumehood.ErrNotStarted) {
		return &fumehood.Error{Op: "start container", Class: fumehood.ErrConfig, Err: cause{err}}
	}
	return c.translate(err, "start container")
}

// NewContainer describes a container to create.
type NewContainer struct {
	Name   string
	Config *container.Config
	Host   *container.HostConfig
}

// CreateContainer creates a container, unless one of its name exists.
func (c *Client) CreateContainer(ctx context.Context, n NewContainer) error {
	_, err := c.api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: n.Name, Config: n.Config, HostConfig: n.Host})
	if errdefs.IsConflict(err) {
		return nil
	}
	return c.translate(err, "create sandbox "+n.Config.Labels[owner.LabelSandbox])
}

// StopContainer kills the processes of a container, and does not remove it. A container that does not run is left as
// it is.
func (c *Client) StopContainer(ctx context.Context, id string) error {
	_, err := c.api.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: new(0)})
	return c.translate(err, "stop container")
}

// Pause freezes all processes of a container until Unpause. It reports false for a container that does not run, or
// that something else has paused.
func (c *Client) Pause(ctx context.Context, id string) (paused bool, err error) {
	for until := time.Now().Add(c.speedup.Of(freezeWithin)); ; {
		_, err = c.api.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		switch {
		case err == nil:
			return true, nil
		case errdefs.IsConflict(err), errdefs.IsNotFound(err):
			return false, nil
		case !strings.Contains(err.Error(), cannotFreeze) || ctx.Err() != nil || time.Now().After(until):
			return false, c.translate(err, "pause container")
		}
	}
}

const (
	// freezeWithin is how long to retry to freeze a container whose processes keep the kernel busy. Each attempt
	// takes runc some tenths of a second: with control groups of version 1 it gives up after a thousand checks.
	freezeWithin = 15 * time.Second
	cannotFreeze = "unable to freeze"
	// notPaused is in the error of Engine 20.10, which reports it as an internal error.
	notPaused = "is not paused"
)

// Unpause resumes a paused container. A container that has ended meanwhile is not an error.
func (c *Client) Unpause(ctx context.Context, id string) error {
	_, err := c.api.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	if errdefs.IsConflict(err) || errdefs.IsNotFound(err) || err != nil && strings.Contains(err.Error(), notPaused) {
		return nil
	}
	return c.translate(err, "unpause container")
}

// maxLog limits what LastLog reads, in bytes.
const maxLog = 256 << 10

// LastLog returns the last lines that a container has written to either stream. It is empty if the log cannot be
// read.
func (c *Client) LastLog(ctx context.Context, s State, lines int) string {
	log, err := c.api.ContainerLogs(ctx, s.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(lines)})
	if err != nil {
		return ""
	}
	defer log.Close()
	var text bytes.Buffer
	limited := io.LimitReader(log, maxLog)
	if s.TTY {
		_, _ = text.ReadFrom(limited) // on an error the text is shorter
	} else {
		_ = demux(&text, &text, limited)
	}
	return fumehood.Output{Bytes: text.Bytes()}.Text()
}

// Logs sends to out what a container has written. With opts.Follow it goes on until the container ends.
func (c *Client) Logs(ctx context.Context, s State, opts provider.LogOptions, out provider.Sink) error {
	tail := "all"
	if opts.Tail > 0 {
		tail = strconv.Itoa(opts.Tail)
	}
	log, err := c.api.ContainerLogs(ctx, s.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: tail, Follow: opts.Follow})
	if err != nil {
		return c.translate(err, "read the log of container "+s.Name)
	}
	defer log.Close()
	stdout := writer(func(p []byte) { out(fumehood.Stdout, p) })
	if s.TTY {
		_, err = io.Copy(stdout, log)
	} else {
		err = demux(stdout, writer(func(p []byte) { out(fumehood.Stderr, p) }), log)
	}
	return c.translate(err, "read the log of container "+s.Name)
}
