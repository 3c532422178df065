package probe

import "os/exec"

func detach(*exec.Cmd) {}

func (host) Raise(int) error { return errNoSuchThing("raise") }

func (host) Ignore(int) {}

func (host) Catch(int) (<-chan struct{}, error) { return nil, errNoSuchThing("trap") }

func (host) Terminal() (rows, cols int, ok bool) { return 0, 0, false }

func (host) Special(kind, _ string) error { return errNoSuchThing(kind) }
