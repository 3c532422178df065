package seccomp

import (
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/fumehood/fumehood"
)

// OCI returns a profile, as Load returns it, in the form of an OCI runtime, for processes that have the given
// capabilities at most. For Unconfined it returns nil. An invalid profile is an ErrConfig.
func OCI(profile string, capabilities []string) (*specs.LinuxSeccomp, error) {
	if profile == Unconfined {
		return nil, nil
	}
	all := &specs.LinuxCapabilities{Bounding: capabilities}
	converted, err := seccomp.LoadProfile(profile, &specs.Spec{Process: &specs.Process{Capabilities: all}})
	if err != nil {
		return nil, &fumehood.Error{Op: "convert seccomp profile", Class: fumehood.ErrConfig, Err: err}
	}
	return converted, nil
}
