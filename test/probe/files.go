package probe

import (
	"context"
	"strconv"
)

var fileCommands = map[string]command{
	"append": {"FILE TEXT", 2, func(_ context.Context, env Env, args []string) error {
		return env.System.Append(args[0], []byte(args[1]))
	}},
	"sparse": {"FILE N: create FILE with N bytes that take no disk space", 2, func(_ context.Context, env Env, args []string) error {
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return usageError(err.Error())
		}
		return env.System.Sparse(args[0], n)
	}},
	"fifo": {"FILE", 1, func(_ context.Context, env Env, args []string) error {
		return env.System.Special("fifo", args[0])
	}},
	"socket": {"FILE", 1, func(_ context.Context, env Env, args []string) error {
		return env.System.Special("socket", args[0])
	}},
	"device": {"FILE: a device like /dev/null, which only root may create", 1, func(_ context.Context, env Env, args []string) error {
		return env.System.Special("device", args[0])
	}},
	"link": {"TARGET FILE: a symbolic link", 2, func(_ context.Context, env Env, args []string) error {
		return env.System.Link(args[0], args[1])
	}},
	"lock": {"FILE: mode 000", 1, func(_ context.Context, env Env, args []string) error {
		return env.System.Lock(args[0])
	}},
}
