package local

import (
	"context"
	"errors"

	"github.com/fumehood/fumehood"
)

var errNoTTY = errors.New("the local provider has no terminals on Windows")

func (p *process) startTTY(uint16, uint16) error {
	return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errNoTTY, Hint: "run it without a terminal"}
}

// Resize returns ErrUnsupported.
func (p *process) Resize(context.Context, uint16, uint16) error {
	return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errNoTTY}
}
