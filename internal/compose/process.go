package compose

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood/internal/owner"
)

// idles reports whether a service only waits, so that the guest can be its main process.
func (a *applying) idles(svc *types.ServiceConfig, img Image) bool {
	if a.pol.Volume == "" || svc.Pid != "" || a.lendsPIDs(svc.Name) {
		return false // as first process of a namespace, the guest kills the processes that it finds
	}
	return waits(mainProgram(svc, img))
}

// mainProgram returns the program of a service with its arguments. As with the Engine, an empty entrypoint clears the image's,
// but not its command; as Compose says, an empty command clears the image's.
func mainProgram(svc *types.ServiceConfig, img Image) []string {
	entrypoint, command := []string(svc.Entrypoint), []string(svc.Command)
	if svc.Entrypoint == nil {
		entrypoint = img.Entrypoint
	}
	if svc.Command == nil && len(svc.Entrypoint) == 0 {
		command = img.Command
	}
	return slices.Concat(entrypoint, command)
}

// HasEntrypoint reports whether the files set a service's entrypoint, so that the image's is not used.
func (p *Project) HasEntrypoint(service string) bool { return p.as.Services[service].Entrypoint != nil }

// CheckPrograms returns an error that names file and line of the services without a program.
func (p *Project) CheckPrograms(images map[string]Image) error {
	c := &checking{Project: p}
	for _, name := range p.order {
		svc := p.as.Services[name]
		if svc.GetScale() > 0 && len(mainProgram(&svc, images[name])) == 0 {
			c.refuse(of(&svc, "command"), "neither the image nor the file names a program")
		}
	}
	return c.err()
}

// emptyCommand keeps an empty command from being replaced by the image's. The Engine does so if the entrypoint is the
// image's too.
func (a *applying) emptyCommand(svc *types.ServiceConfig, img Image) {
	if svc.Command == nil || len(svc.Command) > 0 || svc.Entrypoint != nil || len(img.Entrypoint) == 0 {
		return
	}
	svc.Entrypoint = slices.Clone(img.Entrypoint)
	a.change(svc, "entrypoint", "", strings.Join(svc.Entrypoint, " "), "that of the image, with which the empty command replaces the image's")
}

// lendsPIDs reports whether another service shares a service's PID namespace.
func (a *applying) lendsPIDs(name string) bool {
	for _, other := range a.as.Services {
		if other.Pid == types.ServicePrefix+name {
			return true
		}
	}
	return false
}

// waits reports whether a command only waits, for at least a day, possibly through a shell or a small init.
func waits(args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch path.Base(args[0]) {
	case "tini", "dumb-init", "catatonit":
		rest := args[1:]
		for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
			rest = rest[1:]
		}
		return waits(rest)
	case "sh", "bash", "dash", "ash":
		if len(args) != 3 || args[1] != "-c" {
			return false
		}
		script := strings.TrimPrefix(strings.TrimSuffix(strings.TrimSpace(args[2]), ";"), "exec ")
		switch script {
		case "while true; do sleep 1; done", "while :; do sleep 1; done":
			return true
		}
		if strings.ContainsAny(script, "\"'`$;&|<>()\\*?[]#~={}!\n") {
			return false
		}
		return waits(strings.Fields(script))
	case "sleep":
		return len(args) == 2 && long(args[1])
	case "tail":
		return slices.Equal(args[1:], []string{"-f", "/dev/null"}) || slices.Equal(args[1:], []string{"-F", "/dev/null"})
	}
	return false
}

// long reports whether an argument of sleep is a day or more.
func long(s string) bool {
	if s == "infinity" || s == "inf" {
		return true
	}
	unit := time.Second
	switch {
	case strings.HasSuffix(s, "d"):
		unit = 24 * time.Hour
	case strings.HasSuffix(s, "h"):
		unit = time.Hour
	case strings.HasSuffix(s, "m"):
		unit = time.Minute
	}
	n, err := strconv.ParseFloat(strings.TrimRight(s, "smhd"), 64)
	return err == nil && n*unit.Seconds() >= (24*time.Hour).Seconds()
}

// process makes the guest the main process of a service that only waits. Other services get an init, which reaps their
// orphans.
func (a *applying) process(svc *types.ServiceConfig, idle bool) {
	if !idle {
		if svc.Init == nil && svc.Pid == "" {
			on := true
			svc.Init = &on
			a.change(svc, "init", "", "true", "orphans are reaped; init: false turns it off")
		}
		return
	}
	was := strings.Join(slices.Concat(svc.Entrypoint, svc.Command), " ")
	program := a.runtimes.Guest(svc.Runtime)
	a.change(svc, "command", was, program, "the guest replaces a command that only waits, so that commands start sooner")
	svc.Entrypoint, svc.Command, svc.Init = types.ShellCommand{program}, types.ShellCommand{}, nil
	// The guest does not stop on a signal, so the daemon kills it.
	grace := types.Duration(time.Second)
	svc.StopSignal, svc.StopGracePeriod = "SIGKILL", &grace
	// A restarted guest could not be connected to again.
	svc.Restart = types.RestartPolicyNo
	if svc.Deploy != nil {
		svc.Deploy.RestartPolicy = nil
	}
	if !a.pol.Serve || svc.GetScale() != 1 {
		return
	}
	svc.Entrypoint = append(svc.Entrypoint, "serve")
	svc.StdinOpen, svc.Tty = true, false
	svc.Logging = &types.LoggingConfig{Driver: "none"} // its output is the protocol with the host
	svc.Labels = svc.Labels.Add(owner.LabelMain, owner.MainGuest)
	a.serve[svc.Name] = true
}

// serviceCapabilities are the capabilities of a service's own program: those of commands, and those that login servers
// need. The rest of the Engine's default set must be requested with cap_add.
var serviceCapabilities = append(slices.Clone(capabilities), "AUDIT_WRITE", "SYS_CHROOT")

// harden removes privileges that a service has not requested.
func (a *applying) harden(svc *types.ServiceConfig, idle bool) {
	if svc.Privileged {
		return
	}
	if !slices.ContainsFunc(svc.SecurityOpt, func(opt string) bool { return strings.HasPrefix(opt, "no-new-privileges") }) {
		svc.SecurityOpt = append(svc.SecurityOpt, "no-new-privileges=true")
		a.change(svc, "security_opt", "", "no-new-privileges=true", "setuid programs gain no privileges; no-new-privileges:false allows it")
	}
	a.replaceBuiltin(svc)
	dropped := func(name string) bool {
		return slices.ContainsFunc(svc.CapDrop, func(d string) bool { return capability(d) == name })
	}
	added := func(name string) bool {
		return slices.ContainsFunc(svc.CapAdd, func(d string) bool { return capability(d) == name })
	}
	if dropped("ALL") || added("ALL") {
		return
	}
	base := serviceCapabilities
	if idle {
		base = capabilities
	}
	for _, name := range base {
		if !dropped(name) && !added(name) {
			svc.CapAdd = append(svc.CapAdd, name)
		}
	}
	svc.CapDrop = []string{"ALL"}
	a.change(svc, "cap_drop", "", "ALL but "+strings.Join(svc.CapAdd, ", "), "attackers use the others; cap_add grants them")
}

// replaceBuiltin replaces the Engine's seccomp profile, if a service asks for it, with that of sandboxes. Old Engines
// have no profile with that name, and the Engine's profile allows more than ours.
func (a *applying) replaceBuiltin(svc *types.ServiceConfig) {
	others := slices.DeleteFunc(slices.Clone(svc.SecurityOpt), isBuiltinSeccomp)
	if len(others) != len(svc.SecurityOpt) {
		svc.SecurityOpt = others
		a.change(svc, "security_opt", "seccomp=builtin", "the seccomp profile of sandboxes", "the Engine's own profile allows more")
	}
}

// isBuiltinSeccomp reports whether a security option asks for the Engine's seccomp profile.
func isBuiltinSeccomp(opt string) bool { return opt == "seccomp=builtin" || opt == "seccomp:builtin" }
