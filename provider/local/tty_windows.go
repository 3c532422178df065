package local

import (
	"context"
	"errors"

	"github.com/lazaret/lazaret"
)

var errNoTTY = errors.New("the local provider has no terminals on Windows")

func (p *process) startTTY(uint16, uint16) error {
	return &lazaret.Error{Class: lazaret.ErrUnsupported, Err: errNoTTY, Hint: "leave out TTY"}
}

// Resize is not supported here.
func (p *process) Resize(context.Context, uint16, uint16) error {
	return &lazaret.Error{Class: lazaret.ErrUnsupported, Err: errNoTTY}
}
