package compose

import (
	"cmp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// Runtimes are the container runtimes of a daemon. With the zero value, a runtime is judged by its name alone.
type Runtimes struct {
	Default  string            // name of the daemon's default; empty if unknown
	Programs map[string]string // program or shim, by name
}

// knownRuntimes are runtimes that isolate no less than the Engine's own.
var knownRuntimes = slices.Concat(sharedKernel, []string{"runsc", "io.containerd.runsc.v1", "kata", "kata-runtime", "io.containerd.kata.v2"})

// sharedKernel are runtimes whose containers use the machine's kernel.
var sharedKernel = []string{"runc", "io.containerd.runc.v2", "crun"}

// says reports whether a runtime's name, or that of its program, contains one of the words.
func (r Runtimes) says(name string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(name, word) || strings.Contains(r.Programs[name], word)
	})
}

// GVisor reports whether a runtime is gVisor's. Empty means the default.
func (r Runtimes) GVisor(name string) bool { return r.says(cmp.Or(name, r.Default), "runsc", "gvisor") }

// OwnKernel reports whether a runtime gives containers a kernel of their own. Empty means the default.
func (r Runtimes) OwnKernel(name string) bool {
	return r.GVisor(name) || r.says(cmp.Or(name, r.Default), "kata")
}

// Obscure reports whether the kind of a runtime cannot be determined from its name alone.
func Obscure(name string) bool {
	return !slices.Contains(sharedKernel, name) && !Runtimes{}.OwnKernel(name)
}

// Choose returns the runtime of a container: the user's choice, or else the daemon's default. If a file asks for
// another one that isolates no less, it returns that. Empty means the default.
func (r Runtimes) Choose(user, file string) string {
	chosen := cmp.Or(user, r.Default)
	switch {
	case file == "":
		return user
	case file == chosen, r.OwnKernel(file), chosen == "":
		return file
	case !slices.Contains(sharedKernel, chosen):
		return user // it may isolate more
	case user != "" && !slices.Contains(sharedKernel, file):
		return user // it is not known how well the file's runtime isolates
	}
	return file
}

// Guest returns the path of the guest's program in containers of a runtime. An empty name means the default.
func (r Runtimes) Guest(runtime string) string {
	if r.GVisor(runtime) {
		return ReadableGuest
	}
	return GuestProgram
}

// runtime sets a service's runtime. The service keeps its own unless that isolates less than the chosen one.
func (a *applying) runtime(svc *types.ServiceConfig) {
	was := svc.Runtime
	svc.Runtime = a.pol.Runtimes.Choose(a.pol.Runtime, was)
	switch {
	case svc.Runtime == was:
	case was == "":
		a.change(svc, "runtime", "", svc.Runtime, "the requested runtime")
	default:
		a.change(svc, "runtime", was, cmp.Or(svc.Runtime, a.pol.Runtimes.Default), "a file cannot choose a runtime that isolates less")
	}
}

// AsksForRuntime reports whether a service in the project's files names a runtime.
func (p *Project) AsksForRuntime() bool {
	for _, svc := range p.as.Services {
		if svc.Runtime != "" {
			return true
		}
	}
	return false
}
