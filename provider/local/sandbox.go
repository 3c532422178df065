package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one sandbox, and of its only service.
type sandbox struct {
	provider *Provider
	place    *box.Place
	folder   string // contains owner, work and tmp
	info     fumehood.Info
	keep     bool
	term     bool // the sandbox's environment sets the variable TERM
	commands *commands
}

func (b *sandbox) Info() fumehood.Info { return b.info }

func (b *sandbox) Service(string) provider.ServiceBackend { return b }

// Start runs a command as the user of this process.
func (b *sandbox) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	if cmd.User != "" {
		return nil, &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: errors.New("the local provider cannot run commands as another user"),
			Hint: "leave out the user",
		}
	}
	provider.SetTerm(&cmd, b.term)
	return b.commands.start(ctx, cmd, live, out)
}

// Files returns the host's files. For any user but "" every call on them returns ErrUnsupported.
func (b *sandbox) Files(user string) provider.FileBackend {
	if user == "" {
		return newHostFiles()
	}
	return refuseFiles(&fumehood.Error{
		Class: fumehood.ErrUnsupported, Err: errors.New("the local provider cannot access files as another user"),
		Hint: "leave out As",
	})
}

func classError(class error, format string, a ...any) error {
	return &fumehood.Error{Class: class, Err: fmt.Errorf(format, a...)}
}

func environ(env map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// Close kills the commands and removes the folder, unless the sandbox is kept. If some processes could not be killed,
// it returns an error, but still removes the folder and forgets the sandbox. A retry would not help.
func (b *sandbox) Close(ctx context.Context) error {
	err := b.commands.close()
	if !b.keep {
		if rerr := within(ctx, b.folder); rerr != nil {
			return errors.Join(err, rerr)
		}
	}
	b.place.Leave()
	return err
}

// closeWithin bounds the removal of a folder.
const closeWithin = 10 * time.Second

// within removes a folder within closeWithin.
func within(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	return removeFolder(ctx, folder)
}

// removeFolder removes a folder. Its directories may be unwritable, and processes that outlived their command may still
// create files in it. So remove retries until ctx ends.
func removeFolder(ctx context.Context, folder string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := owner.Discard(folder)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
