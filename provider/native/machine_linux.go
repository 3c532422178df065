//go:build amd64 || arm64

package native

import (
	"context"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/provider"
)

var _ provider.Measurer = (*Provider)(nil)

// Machine returns the CPUs that this process may use, and this machine's memory.
func (p *Provider) Machine(context.Context) (provider.Machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return provider.Machine{}, os.NewSyscallError("sysinfo", err)
	}
	return provider.Machine{CPUs: runtime.GOMAXPROCS(0), Memory: int64(info.Totalram) * int64(info.Unit)}, nil //nolint:gosec // no machine has 8 EiB
}
