package fumehood

import "context"

// Measurer is the capability of a Provider to say how large the machine is that sandboxes run on, which need not be
// this one.
type Measurer interface {
	Machine(ctx context.Context) (Machine, error)
}

// Machine is what sandboxes share.
type Machine struct {
	CPUs   int
	Memory int64 // bytes
}
