//go:build amd64 || arm64

package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/wire"
)

// stateFile is the file, in the folder of a kept sandbox, that contains its state.
const stateFile = "sandbox.json"

// maxState bounds the file in bytes.
const maxState = 16 << 20

// state describes a kept sandbox to other processes.
type state struct {
	Protocol byte           `json:"protocol"` // that of its guests; see wire.Version
	Marks    box.Marks      `json:"marks"`
	OneUser  bool           `json:"one_user,omitempty"` // as in fumehood.Info
	Created  time.Time      `json:"created"`
	Guest    string         `json:"guest"`            // the path of its guests' program
	Services []serviceState `json:"services"`         // the default one first
	Helper   int            `json:"helper,omitempty"` // the process that connects the network; 0 for none
}

// serviceState describes a service.
type serviceState struct {
	Info   fumehood.ServiceInfo `json:"info"`
	First  string               `json:"first"`  // its first process, in the text form of owner.ID
	Config setup.Config         `json:"config"` // for guests of other users
	Term   bool                 `json:"term"`   // its environment sets the variable TERM
	Runs   bool                 `json:"runs"`   // its own program was started
}

// info returns the description of the sandbox.
func (st state) info(providerName string) fumehood.Info {
	info := st.Marks.Info(providerName)
	info.OneUser = st.OneUser
	for _, s := range st.Services {
		info.Services = append(info.Services, s.Info)
	}
	return info
}

// writeState writes the file of a sandbox that has started.
func (sb *sandbox) writeState() error {
	st := state{Protocol: wire.Version, Marks: sb.Marks(), OneUser: sb.About.OneUser, Created: time.Now().UTC(), Guest: sb.guest, Helper: sb.network.pid()}
	for _, s := range sb.services {
		first, err := owner.Of(s.init.pid)
		if err != nil {
			return err
		}
		c := s.config
		c.Root = nil
		st.Services = append(st.Services, serviceState{Info: s.Info, First: first.String(), Config: c, Term: s.Term, Runs: s.runsProgram()})
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
	case st.Marks[owner.LabelSandbox] != name:
		return fmt.Errorf("it describes %q", st.Marks[owner.LabelSandbox])
	case st.Protocol != wire.Version:
		return fmt.Errorf("it was started by another version of Fumehood: protocol %d, this one has %d", st.Protocol, wire.Version)
	case st.Marks.Key() == nil:
		return errors.New("its key has the wrong length")
	case !filepath.IsAbs(st.Guest):
		return errors.New("the path of its guest is not absolute")
	case len(st.Services) == 0:
		return errors.New("it has no service")
	}
	names := map[string]bool{}
	for _, s := range st.Services {
		name := s.Info.Name
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
