package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// named selects a service of a named sandbox, and the user that a command acts as. service and user may be empty.
type named struct{ name, service, user string }

func (n *named) add(flags *pflag.FlagSet) {
	flags.StringVar(&n.service, "service", "", "the `service` (default: the sandbox's default one)")
}

func (n *named) addUser(flags *pflag.FlagSet) {
	flags.StringVarP(&n.user, "user", "u", "", "the `user`: name, uid, or either with :group (default: the service's)")
}

// opener returns the provider. It fails if the provider cannot open sandboxes of other processes.
func (a *commandLine) opener(ctx context.Context) (fumehood.Provider, provider.Opener, error) {
	a.quietly()
	p, err := a.open(ctx, a.provider)
	if err != nil {
		return nil, nil, err
	}
	o, ok := p.(provider.Opener)
	if !ok {
		err := &fumehood.Error{Op: "open sandbox", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s has no named sandboxes", a.provider)}
		return nil, nil, errors.Join(err, p.Close(ctx))
	}
	return p, o, nil
}

// in opens a named sandbox and calls f with the service.
func (a *commandLine) in(ctx context.Context, n named, f func(fumehood.Sandbox, fumehood.Service) error) (err error) {
	p, o, err := a.opener(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
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
