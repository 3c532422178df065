//go:build !linux || (!amd64 && !arm64)

package native

import (
	"context"
	"errors"
	"runtime"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// Provider runs sandboxes on Linux on amd64 and arm64. New fails elsewhere.
type Provider struct{}

// CheckSupport returns an ErrUnsupported.
func CheckSupport() error { return errElsewhere("make native provider") }

// NetworkHelper returns an ErrUnsupported.
func NetworkHelper() (string, error) { return "", errElsewhere("find network helper") }

// New returns an ErrUnsupported.
func New(context.Context, Options) (*Provider, error) {
	return nil, errElsewhere("make native provider")
}

// Diagnose reports one failed check, and returns false.
func Diagnose(report func(provider.Check)) bool {
	report(provider.Check{Name: "machine", Status: provider.StatusFail, Detail: errElsewhere("diagnose").Error()})
	return false
}

func errElsewhere(op string) error {
	return &fumehood.Error{
		Op: op, Class: fumehood.ErrUnsupported, Err: errors.New("the native provider needs Linux on amd64 or arm64, this is " + runtime.GOOS + " on " + runtime.GOARCH),
		Hint: "use the docker provider",
	}
}

// Name returns "native".
func (*Provider) Name() string { return "native" }

// Start returns an ErrUnsupported.
func (*Provider) Start(context.Context, fumehood.Spec) (fumehood.Sandbox, error) {
	return nil, errElsewhere("start sandbox")
}

// LoadImages returns an ErrUnsupported.
func (*Provider) LoadImages(context.Context, string) ([]provider.Image, error) {
	return nil, errElsewhere("load images")
}

// Close does nothing.
func (*Provider) Close(context.Context) error { return nil }
