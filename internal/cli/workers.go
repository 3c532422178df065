package cli

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/workers"
)

// fleet has the flags of the workers provider.
type fleet struct{ urls, tokenFile, ca string }

// fleetFlags are the names of those flags.
var fleetFlags = []string{"workers", "workers-token-file", "workers-ca"}

func (f *fleet) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.urls, "workers", "", "run sandboxes on servers ('fumehood serve') with these `addresses`, separated by commas: https://HOST:PORT, http://HOST:PORT or unix:PATH")
	flags.StringVar(&f.tokenFile, "workers-token-file", "", "the `file` with the bearer token of the workers (default: FUMEHOOD_TOKEN, else none)")
	flags.StringVar(&f.ca, "workers-ca", "", "the `file` with the certificates, in PEM, that sign those of the workers (default: the system's)")
	markSettings(flags, fleetFlags...)
}

// fleetOptions returns the options of the workers provider.
func (a *commandLine) fleetOptions() (opts workers.Options, err error) {
	for flag, set := range map[string]bool{
		"transport": docker.Transport(a.transport) == docker.TransportEngine, "runtime": a.runtime != "", "seccomp": a.seccomp != "", "user-namespace": a.userns,
	} {
		if set && !a.settings.used[flag] {
			return opts, usageError("--%s is for the machine that runs sandboxes: give it to the workers' 'fumehood serve'", flag)
		}
	}
	opts = workers.Options{CAFile: a.fleet.ca, Token: os.Getenv("FUMEHOOD_TOKEN"), Logger: a.log} // warnings about workers concern each command
	for url := range strings.SplitSeq(a.fleet.urls, ",") {
		if url = strings.TrimSpace(url); url != "" {
			opts.URLs = append(opts.URLs, url)
		}
	}
	if len(opts.URLs) == 0 {
		return opts, usageError("the workers provider needs --workers with their addresses")
	}
	if a.fleet.tokenFile != "" {
		text, err := os.ReadFile(a.fleet.tokenFile)
		if err != nil {
			return opts, usageError("--workers-token-file: %w", err)
		}
		opts.Token = strings.TrimSpace(string(text))
	}
	return opts, nil
}

// ownFlags are the flags that only one provider has, by its name.
var ownFlags = map[string][]string{kubernetesName: clusterFlags, workersName: fleetFlags}

// noteFlags records flags of ownFlags that the command line has, and chooses the provider workers if there are some.
func (a *commandLine) noteFlags(flags *pflag.FlagSet) {
	a.given = map[string]string{}
	for name, own := range ownFlags {
		for _, flag := range own {
			if flags.Changed(flag) && !a.settings.used[flag] {
				a.given[name] = flag
			}
		}
	}
	if a.provider == auto && a.fleet.urls != "" {
		a.provider = workersName
	}
}
