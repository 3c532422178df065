package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
)

// named selects a service of a named sandbox, and the user that a command acts as. service and user may be empty.
type named struct{ name, service, user string }

func (n *named) add(flags *pflag.FlagSet) {
	flags.StringVar(&n.service, "service", "", "the `service` (default: the sandbox's default one)")
}

func (n *named) addUser(flags *pflag.FlagSet) {
	flags.StringVarP(&n.user, "user", "u", "", "the `user`: name, uid, or either with :group (default: the service's)")
}

// opened is a provider that can open sandboxes of other processes.
type opened interface {
	fumehood.Provider
	provider.Opener
}

// places returns the providers in which kept sandboxes are looked up, in this order.
func (a *commandLine) places() []string {
	switch {
	case a.provider != auto:
		return []string{a.provider}
	case native.CheckSupport() == nil && !a.needsEngine():
		return []string{"native", "docker"} // native looks into a folder
	}
	return []string{"docker"}
}

// lacksDocker reports whether err is that of a missing Docker daemon, and the provider is auto, which needs none.
func (a *commandLine) lacksDocker(err error) bool {
	return errors.Is(err, docker.ErrNoDaemon) && a.provider == auto && !a.needsEngine() && native.CheckSupport() == nil
}

// notInDocker is a hint: no name was looked up in Docker, because of an error of lacksDocker.
func notInDocker(command string, err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return command + " lists them, but not those of Docker, whose socket this user may not use: add the user to its group (usually docker)"
	}
	return command + " lists them; no Docker Engine answers, so it was not looked up there"
}

// opener opens one of the providers in places. It returns nil if auto includes that provider, but it names no sandboxes.
func (a *commandLine) opener(ctx context.Context, place string) (opened, error) {
	a.quietly()
	p, err := a.openProvider(ctx, place)
	if a.lacksDocker(err) {
		a.log.Debug("there may be more sandboxes in Docker", "error", err)
	}
	if err != nil {
		return nil, err
	}
	o, ok := p.(opened)
	if !ok && a.provider == auto {
		return nil, p.Close(ctx)
	}
	if !ok {
		err := &fumehood.Error{Op: "open sandbox", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s has no named sandboxes", place)}
		return nil, errors.Join(err, p.Close(ctx))
	}
	return o, nil
}

// holder opens the provider of a kept sandbox.
func (a *commandLine) holder(ctx context.Context, name string) (opened, error) {
	places := a.places()
	var lacking error
	for i, place := range places {
		o, err := a.opener(ctx, place)
		switch {
		case a.lacksDocker(err):
			lacking = err
			continue
		case err != nil:
			return nil, err
		case o == nil:
			continue
		case i == len(places)-1: // it reports an unknown name
			return o, nil
		}
		kept, err := o.Kept(ctx, name)
		if err == nil && len(kept) > 0 {
			return o, nil
		}
		if err := errors.Join(err, o.Close(ctx)); err != nil {
			return nil, err
		}
	}
	return nil, &fumehood.Error{
		Op: "open sandbox " + name, Class: fumehood.ErrConfig, Err: errors.New("there is no such kept sandbox"),
		Hint: notInDocker("`fumehood ps`", lacking),
	}
}

// in opens a named sandbox and calls f with the service.
func (a *commandLine) in(ctx context.Context, n named, f func(fumehood.Sandbox, fumehood.Service) error) (err error) {
	o, err := a.holder(ctx, n.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close(ctx)) }()
	sb, err := o.Open(ctx, n.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close(ctx)) }()
	var svc fumehood.Service = sb
	if n.service != "" {
		if svc, err = sb.Lookup(n.service); err != nil {
			return err
		}
	}
	if n.user != "" {
		svc = svc.As(n.user)
	}
	return f(sb, svc)
}

// commandArguments splits the arguments "NAME -- COMMAND [ARG...]". dash is the number of arguments before "--".
func commandArguments(args []string, dash int) (name string, command []string, err error) {
	if dash != 1 || len(args) < 2 {
		return "", nil, usageError("exec needs NAME and, after --, a command to run")
	}
	return args[0], args[1:], nil
}
