//go:build amd64 || arm64

package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// stateFile is the file, in the folder of a kept sandbox, that contains its state.
const stateFile = "sandbox.json"

// maxState bounds the file in bytes.
const maxState = 16 << 20

// state describes a kept sandbox to other processes.
type state struct {
	Protocol byte           `json:"protocol"` // that of its guests; see wire.Version
	Info     fumehood.Info  `json:"info"`
	Created  time.Time      `json:"created"`
	Key      []byte         `json:"key"`   // the secret of its guests
	Guest    string         `json:"guest"` // the path of their program
	Services []serviceState `json:"services"`
	Helper   int            `json:"helper,omitempty"` // the process that connects the network; 0 for none
}

// serviceState describes a service, in the order of Info.Services.
type serviceState struct {
	First  string       `json:"first"`  // its first process, in the text form of owner.ID
	Config setup.Config `json:"config"` // for guests of other users
	Term   bool         `json:"term"`   // its environment sets the variable TERM
	Runs   bool         `json:"runs"`   // its own program was started
}

// writeState writes the file of a sandbox that has started.
func (sb *sandbox) writeState() error {
	st := state{Protocol: wire.Version, Info: provider.Describe(&sb.Spec, sb.Info()), Created: time.Now().UTC(), Key: sb.Key, Guest: sb.guest, Helper: sb.network.pid()}
	for _, s := range sb.services {
		first, err := owner.Of(s.init.pid)
		if err != nil {
			return err
		}
		c := s.config
		c.Root = nil
		st.Services = append(st.Services, serviceState{First: first.String(), Config: c, Term: s.term, Runs: s.runs})
	}
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return owner.WriteFile(filepath.Join(sb.folder, stateFile), text)
}

// readState reads the file in a kept sandbox's folder.
func readState(folder string) (state, error) {
	file := filepath.Join(folder, stateFile)
	st, err := parseState(file)
	if err == nil {
		return st, nil
	}
	return state{}, &fumehood.Error{
		Class: fumehood.ErrInfrastructure, Path: file, Err: fmt.Errorf("the sandbox cannot be used: %w", err),
		Hint: "remove it with `fumehood cleanup " + filepath.Base(folder) + "`",
	}
}

func parseState(file string) (st state, err error) {
	text, err := archive.ReadFile(file, maxState)
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err != nil {
		return st, err
	}
	return st, st.checkState(filepath.Base(filepath.Dir(file)))
}

// checkState rejects a state that was not written by writeState.
func (st state) checkState(name string) error {
	switch {
	case st.Info.Name != name:
		return fmt.Errorf("it describes %q", st.Info.Name)
	case st.Protocol != wire.Version:
		return fmt.Errorf("it was started by another version of Fumehood: protocol %d, this one has %d", st.Protocol, wire.Version)
	case len(st.Key) != wire.SecretSize:
		return errors.New("its key has the wrong length")
	case !filepath.IsAbs(st.Guest):
		return errors.New("the path of its guest is not absolute")
	case len(st.Services) == 0 || len(st.Services) != len(st.Info.Services):
		return fmt.Errorf("it has %d services and describes %d", len(st.Services), len(st.Info.Services))
	}
	names := map[string]bool{}
	for i, s := range st.Services {
		name := st.Info.Services[i].Name
		if name == "" || !filepath.IsLocal(name) || filepath.Base(name) != name || names[name] {
			return fmt.Errorf("bad name of a service: %q", name)
		}
		names[name] = true
		if _, err := owner.Parse(s.First); err != nil {
			return err
		}
	}
	return nil
}
