//go:build amd64 || arm64

package native

import (
	"context"
	"runtime"

	"github.com/fumehood/fumehood/provider"
)

var _ provider.Measurer = (*Provider)(nil)

// Machine returns the CPUs that this process may use, and the memory of this machine or of the control groups in which this
// process and its sandboxes are, whichever is smaller.
func (p *Provider) Machine(context.Context) (provider.Machine, error) {
	memory, available := thisMachine().room()
	return provider.Machine{CPUs: runtime.GOMAXPROCS(0), Memory: memory, MemoryAvailable: available}, nil
}

// room returns how many bytes of memory sandboxes can have together, and how many can be allocated now.
func (m machine) room() (memory, available int64) {
	for _, r := range m.memory() {
		if r.limit <= 0 {
			continue
		}
		if memory == 0 || r.limit < memory {
			memory = r.limit
		}
		if left := max(r.limit-r.used, 1); available == 0 || left < available {
			available = left
		}
	}
	return memory, available
}
