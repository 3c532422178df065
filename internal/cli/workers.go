package cli

import (
	"crypto/tls"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/provider/workers"
)

// fleet has the flags of the workers provider.
type fleet struct{ urls, tokenFile, ca string }

// fleetFlags are the names of those flags.
var fleetFlags = []string{"workers", "workers-token-file", "workers-ca"}

func (f *fleet) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.urls, "workers", "", "run sandboxes on servers ('fumehood serve') with these `addresses`, separated by commas: https://HOST:PORT, http://HOST:PORT or unix:PATH; or kubernetes:SERVICE, those of a Service in a cluster")
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
	switch service, ok := a.fleet.service(); {
	case len(opts.URLs) == 0:
		return opts, usageError("the workers provider needs --workers with their addresses")
	case ok:
		if err := a.discover(&opts, service); err != nil {
			return opts, err
		}
	case slices.ContainsFunc(opts.URLs, func(url string) bool { return strings.HasPrefix(url, inCluster) }):
		return opts, usageError("--workers kubernetes:SERVICE excludes other addresses")
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

// inCluster begins the value of --workers that names a Service of a cluster.
const inCluster = "kubernetes:"

// service returns the Service that --workers names, if it names one and nothing else.
func (f *fleet) service() (name string, ok bool) {
	name, ok = strings.CutPrefix(strings.TrimSpace(f.urls), inCluster)
	return name, ok && !strings.Contains(name, ",")
}

// discover makes the workers those of a Service in a cluster.
func (a *commandLine) discover(opts *workers.Options, service string) error {
	found, err := kubernetes.NewWorkerService(kubernetes.Options{Context: a.cluster.context, Namespace: a.cluster.namespace}, service)
	if err != nil {
		return err
	}
	flags := []string{"--workers", inCluster + service}
	if a.cluster.namespace != "" {
		flags = append(flags, "--namespace", a.cluster.namespace)
	}
	if a.cluster.context != "" {
		flags = append(flags, "--kube-context", a.cluster.context)
	}
	opts.URLs, opts.Discover = nil, &workers.Discovery{Name: inCluster + service, Flags: flags, List: found.List}
	opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: found.ServerName()}
	return nil
}

// ownFlags are the flags that only one provider has, by its name.
var ownFlags = map[string][]string{kubernetesName: clusterFlags, workersName: fleetFlags}

// noteFlags records flags of ownFlags that the command line has, and chooses the provider workers if there are some.
func (a *commandLine) noteFlags(flags *pflag.FlagSet) {
	a.given = map[string]string{}
	_, discovers := a.fleet.service()
	for name, own := range ownFlags {
		for _, flag := range own {
			if discovers && (flag == "namespace" || flag == "kube-context") { // the Service's
				continue
			}
			if flags.Changed(flag) && !a.settings.used[flag] {
				a.given[name] = flag
			}
		}
	}
	if a.provider == auto && a.fleet.urls != "" {
		a.provider = workersName
	}
}
