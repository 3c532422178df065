package host

import (
	"errors"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

var failures = map[string]error{
	wire.NoProgram: fumehood.ErrProgramNotFound, wire.NoExecutable: fumehood.ErrNotExecutable, wire.NoDir: fumehood.ErrDirNotFound,
	wire.NoStart: fumehood.ErrNotStarted, wire.NoResources: fumehood.ErrInfrastructure, wire.UsedUp: fumehood.ErrBroken, wire.NoProcesses: fumehood.ErrLimit, wire.Hindered: fumehood.ErrBroken,
	wire.NoRlimit: fumehood.ErrUnsupported, wire.NoCounter: fumehood.ErrUnsupported,
	wire.NoRoom: fumehood.ErrLimit, wire.NoDetached: fumehood.ErrConfig,
}

func startFailure(f *wire.Failed) error {
	class, ok := failures[f.What]
	if !ok {
		return protocolError("unknown reason of a failed start: %.100q", f.What)
	}
	e := &fumehood.Error{Class: class, Err: errors.New(f.Text)}
	switch f.What {
	case wire.NoProcesses:
		e.Err, e.Hint = &provider.ProcessLimit{Text: f.Text}, provider.ProcessLimitHint
	case wire.NoRlimit:
		e.Hint = "limit the processes of the whole sandbox (--pids)"
	case wire.NoCounter:
		e.Hint = "limit the processor time of each process (--ulimit cpu), or the time (--timeout)"
	case wire.NoRoom:
		e.Hint = "forget those that have ended"
	}
	return e
}
