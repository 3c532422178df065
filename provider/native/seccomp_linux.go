//go:build amd64 || arm64

package native

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/native/filter"
	"github.com/fumehood/fumehood/internal/seccomp"
)

// capabilities are those of root in a sandbox, by their numbers in capabilities(7). They are the same as under docker.
var capabilities = map[string]int{
	"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER,
	"CAP_FSETID": unix.CAP_FSETID, "CAP_KILL": unix.CAP_KILL, "CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
	"CAP_SETGID": unix.CAP_SETGID, "CAP_SETUID": unix.CAP_SETUID,
}

// programCapabilities are those that root can have in a service with a program of its own.
var programCapabilities = func() map[string]int {
	all := maps.Clone(capabilities)
	all["CAP_AUDIT_WRITE"], all["CAP_SYS_CHROOT"] = unix.CAP_AUDIT_WRITE, unix.CAP_SYS_CHROOT
	return all
}()

// capabilitySet returns capabilities as one bit for each.
func capabilitySet() (set uint64) {
	for _, n := range capabilities {
		set |= 1 << n
	}
	return set
}

// seccomp returns the filter of system calls that the options ask for, for sandboxes without programCapabilities, and logs a
// weaker one than Fumehood's.
func (p *Provider) seccomp() ([]byte, error) {
	switch p.opts.Seccomp {
	case "":
		return filter.Default(runtime.GOARCH)
	case seccomp.Unconfined:
		p.log.Warn("unsafe, allowed: the sandboxes' system calls are not filtered", "seccomp", p.opts.Seccomp)
		return nil, nil
	}
	program, err := p.compileFilter(p.opts.Seccomp, capabilities)
	if err == nil {
		p.log.Warn("the sandboxes have another seccomp profile than Fumehood's, which may allow more", "seccomp", p.opts.Seccomp)
	}
	return program, err
}

// filterKey is a name of Spec.Seccomp, and whether the filter is for services with programCapabilities.
type filterKey struct {
	profile string
	program bool
}

// filterOf returns a filter of system calls.
func (p *Provider) filterOf(key filterKey) ([]byte, error) {
	all := capabilities
	switch {
	case key.program:
		all = programCapabilities
	case key.profile == "":
		return p.filter, nil
	}
	compile, _ := p.filters.LoadOrStore(key, sync.OnceValues(func() ([]byte, error) {
		return p.compileFilter(cmp.Or(key.profile, p.opts.Seccomp), all)
	}))
	return compile.(func() ([]byte, error))()
}

// compileFilter compiles a seccomp profile, named as in seccomp.Load, for processes with capabilities.
func (p *Provider) compileFilter(name string, capabilities map[string]int) ([]byte, error) {
	profile, err := seccomp.Load(name)
	if err != nil || profile == seccomp.Unconfined {
		return nil, err
	}
	kernel, err := kernelVersion()
	if err != nil {
		return nil, &fumehood.Error{Op: "read the kernel's version", Class: fumehood.ErrInfrastructure, Err: err}
	}
	return filter.Compile(profile, runtime.GOARCH, slices.Collect(maps.Keys(capabilities)), kernel)
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
