package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/moby/moby/client"

	"github.com/lazaret/lazaret"
)

// State is what the Engine says of a container.
type State struct {
	ID         string
	Name       string
	Status     string // "created", "running", "exited" ...
	Running    bool
	ExitCode   int
	OOMKilled  bool // the out-of-memory killer struck in it since it started
	User       string
	WorkingDir string
	Labels     map[string]string
	Ports      []lazaret.Port // that are published
}

// Inspect describes a container by name or id. A container that is not there is an ErrUnavailable.
func (c *Client) Inspect(ctx context.Context, container string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.api.ContainerInspect(ctx, container, client.ContainerInspectOptions{})
	if err != nil {
		return State{}, c.translate(err, "inspect container "+container)
	}
	s := State{ID: res.Container.ID, Name: trimSlash(res.Container.Name)}
	if st := res.Container.State; st != nil {
		s.Status, s.Running, s.ExitCode, s.OOMKilled = string(st.Status), st.Running, st.ExitCode, st.OOMKilled
	}
	if cfg := res.Container.Config; cfg != nil {
		s.User, s.WorkingDir, s.Labels = cfg.User, cfg.WorkingDir, cfg.Labels
	}
	if net := res.Container.NetworkSettings; net != nil {
		for port, bindings := range net.Ports {
			for _, b := range bindings {
				if host, err := strconv.Atoi(b.HostPort); err == nil {
					s.Ports = append(s.Ports, lazaret.Port{
						Host: host, Container: int(port.Num()), Protocol: string(port.Proto()), Address: b.HostIP.String(),
					})
				}
			}
		}
	}
	return s, nil
}

func trimSlash(name string) string {
	if len(name) > 0 && name[0] == '/' {
		return name[1:]
	}
	return name
}

// Unavailable makes the error of a call on a container that does not run.
func (s State) Unavailable() error {
	how := fmt.Sprintf("container %s is %s", s.Name, s.Status)
	if s.Status == "exited" {
		how = fmt.Sprintf("container %s has exited with code %d", s.Name, s.ExitCode)
	}
	if s.OOMKilled {
		how += ", after the out-of-memory killer struck"
	}
	return &lazaret.Error{Class: lazaret.ErrUnavailable, Err: fmt.Errorf("%s", how), Hint: "start a new sandbox"}
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := c.api.ContainerStart(ctx, id, client.ContainerStartOptions{})
	if err == nil {
		return nil
	}
	// What the user asked for shows only now to be wrong: a user that the image does not know, say.
	if f := startFailure(err.Error()); errors.Is(f, lazaret.ErrNotStarted) {
		return &lazaret.Error{Op: "start container", Class: lazaret.ErrConfig, Err: cause{err}}
	}
	return c.translate(err, "start container")
}

// StopContainer kills what runs in a container, and leaves it. One that does not run is left as it is.
func (c *Client) StopContainer(ctx context.Context, id string) error {
	_, err := c.api.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: new(0)})
	return c.translate(err, "stop container")
}
