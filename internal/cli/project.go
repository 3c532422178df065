package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session/spec"
)

// projectFlags are the flags that choose a Compose project, Dockerfile, environment spec or folder.
type projectFlags struct {
	files, profiles, envFiles, hostEnv []string
	metadata                           []string
	service, egress                    string
	prebuilt                           bool
	allowFlags
}

// allowFlags are the flags that grant a file permissions. No file can grant them itself.
type allowFlags struct {
	allowUnsafe bool
	allowRead   []string
}

// add declares the flags. file is the name of the kind of file in their help.
func (f *allowFlags) add(flags *pflag.FlagSet, file string) {
	f.addRead(flags, file)
	flags.BoolVar(&f.allowUnsafe, "allow-unsafe", false, "allow, and log, settings that break the isolation: privileged services, host namespaces, devices, the Docker socket, /etc")
}

// addRead declares only the flag for reading.
func (f *allowFlags) addRead(flags *pflag.FlagSet, file string) {
	flags.StringArrayVar(&f.allowRead, "allow-read", nil, "let the "+file+" read or mount a `path` outside its folder")
	markSettings(flags, "allow-read")
}

// over applies the flags to an environment spec.
func (f *allowFlags) over(e *spec.Environment) {
	e.AllowUnsafe, e.AllowRead = f.allowUnsafe, f.allowRead
}

// add declares the flags.
func (f *projectFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.files, "file", "f", nil, "a Compose `file` (repeatable, later ones override), a Dockerfile, an environment spec, or a folder with one")
	flags.StringVar(&f.service, "service", "", "the default `service` (default: the one named default, else with x-default: true, else the first)")
	flags.StringArrayVar(&f.profiles, "profile", nil, "activate a `profile`")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "a `file` of variables for the Compose file (default: .env in its folder)")
	flags.StringSliceVar(&f.hostEnv, "host-env", nil, "`names` of this process's variables that the Compose file may see (default: none)")
	flags.StringArrayVar(&f.metadata, "sample-metadata", nil, "a `KEY=VALUE` that the Compose file sees as SAMPLE_METADATA_KEY")
	flags.StringVar(&f.egress, "egress", "", "`internet` lets the project's networks reach the internet (default: as in the file)")
	f.allowFlags.add(flags, "Compose file or spec")
	flags.BoolVar(&f.prebuilt, "prebuilt", false, "never pull or build an image; a missing image is an error")
	markSettings(flags, "egress")
}

// compose returns the Compose project that the flags describe.
func (f *projectFlags) compose() (fumehood.Compose, error) {
	metadata := map[string]string{}
	for _, kv := range f.metadata {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return fumehood.Compose{}, fmt.Errorf("--sample-metadata %q is not KEY=VALUE", kv)
		}
		metadata[key] = value
	}
	env, err := spec.MetadataEnv(metadata)
	if err != nil {
		return fumehood.Compose{}, err
	}
	found, err := f.discover()
	if err != nil {
		return fumehood.Compose{}, err
	}
	c := fumehood.Compose{
		Profiles: f.profiles, EnvFiles: f.envFiles, HostEnv: f.hostEnv, Env: env,
		Service: f.service, Egress: f.egress, AllowUnsafe: f.allowUnsafe, AllowRead: f.allowRead, Prebuilt: f.prebuilt,
	}
	switch found.Kind {
	case spec.FoundCompose:
		c.Files = found.Files
	case spec.FoundDockerfile:
		c.Dockerfile = found.Files[0]
	case spec.FoundEnvironment:
		return c, fmt.Errorf("%s is an environment spec, not a Compose project", found.Files[0])
	case spec.FoundNothing:
		return c, errors.New("there is no Compose file and no Dockerfile")
	}
	return c, nil
}
