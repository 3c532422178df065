//go:build amd64 || arm64

package native

import (
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/seccomp"
	"github.com/fumehood/fumehood/internal/seccomp/filter"
)

// capabilities are those of root in a sandbox, by their numbers in capabilities(7). They are the same as under docker.
var capabilities = map[string]int{
	"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER,
	"CAP_FSETID": unix.CAP_FSETID, "CAP_KILL": unix.CAP_KILL, "CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
	"CAP_SETGID": unix.CAP_SETGID, "CAP_SETUID": unix.CAP_SETUID,
}

// capabilitySet returns capabilities as one bit for each.
func capabilitySet() (set uint64) {
	for _, n := range capabilities {
		set |= 1 << n
	}
	return set
}

// seccomp returns the filter of system calls that the options ask for, and logs a weaker one than Fumehood's.
func (p *Provider) seccomp() ([]byte, error) {
	switch p.opts.Seccomp {
	case "":
		return filter.Default(runtime.GOARCH)
	case seccomp.Unconfined:
		p.log.Warn("unsafe, allowed: the sandboxes' system calls are not filtered", "seccomp", p.opts.Seccomp)
		return nil, nil
	}
	profile, err := seccomp.Load(p.opts.Seccomp)
	if err != nil {
		return nil, err
	}
	kernel, err := kernelVersion()
	if err != nil {
		return nil, &fumehood.Error{Op: "read the kernel's version", Class: fumehood.ErrInfrastructure, Err: err}
	}
	p.log.Warn("the sandboxes have another seccomp profile than Fumehood's, which may allow more", "seccomp", p.opts.Seccomp)
	var names []string
	for name := range capabilities {
		names = append(names, name)
	}
	return filter.Compile(profile, runtime.GOARCH, names, kernel)
}

// kernelVersion returns the version of the running kernel.
func kernelVersion() (k filter.Kernel, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return k, err
	}
	release := unix.ByteSliceToString(u.Release[:])
	_, err = fmt.Fscanf(strings.NewReader(release), "%d.%d", &k.Major, &k.Minor)
	return k, err
}
