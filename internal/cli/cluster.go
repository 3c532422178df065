package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/session/spec"
)

// cluster has the flags of the kubernetes provider.
type cluster struct {
	context, namespace, guestImage, pullSecrets, memory string
	cpus                                                float64
	pending                                             time.Duration
}

// clusterFlags are the names of those flags.
var clusterFlags = []string{"kube-context", "namespace", "guest-image", "pull-secrets", "reserve-memory", "reserve-cpus", "pending"}

func (c *cluster) add(flags *pflag.FlagSet) {
	flags.StringVar(&c.context, "kube-context", "", "the `context` of the kubeconfig file for the kubernetes provider and workers in a cluster (default: the current one)")
	flags.StringVar(&c.namespace, "namespace", "", "the `namespace` of the kubernetes provider's Pods, or of workers in a cluster (default: that of the context, or of this Pod)")
	flags.StringVar(&c.guestImage, "guest-image", "", "the `image` from which Pods get the guest; 'fumehood image guest' makes it")
	flags.StringVar(&c.pullSecrets, "pull-secrets", "", "the `names` of secrets in the namespace by which nodes pull images, separated by commas")
	flags.StringVar(&c.memory, "reserve-memory", spec.FormatSize(kubernetes.DefaultRequestMemory), "the `size` of memory that a node keeps free for each Pod, at most the sandbox's limit")
	flags.Float64Var(&c.cpus, "reserve-cpus", kubernetes.DefaultRequestCPUs, "the `number` of cores that a node keeps free for each Pod, at most the sandbox's limit")
	flags.DurationVar(&c.pending, "pending", kubernetes.DefaultPending, "how long a Pod may wait for a node or its images, a `time`")
	markSettings(flags, clusterFlags...)
}

// clusterOptions returns the options of the kubernetes provider.
func (a *commandLine) clusterOptions() (kubernetes.Options, error) {
	c := a.cluster
	opts := kubernetes.Options{
		Context: c.context, Namespace: c.namespace, GuestImage: c.guestImage, RequestCPUs: c.cpus, Pending: c.pending,
		RuntimeClass: a.runtime, UserNamespaces: a.userns, NoReaper: a.noReaper, DefaultImage: a.image,
		AllowUnenforcedLimits: a.allowUnenforced, Logger: a.providerLog(),
	}
	switch {
	case docker.Transport(a.transport) == docker.TransportEngine && !a.settings.used["transport"]:
		return opts, usageError("--transport engine is for the docker provider")
	case a.seccomp != "" && !a.settings.used["seccomp"]:
		return opts, usageError("--seccomp is for other providers: Pods have the profile of the nodes' runtime")
	case c.pending <= 0:
		return opts, usageError("--pending %v is not positive", c.pending)
	case !(c.cpus > 0):
		return opts, usageError("--reserve-cpus %v is not positive", c.cpus)
	}
	var err error
	if opts.RequestMemory, err = spec.ParseSize(c.memory); err != nil || opts.RequestMemory <= 0 {
		return opts, usageError("--reserve-memory %q is not a size such as 64MiB", c.memory)
	}
	opts.PullSecrets = c.secrets()
	return opts, nil
}

// secrets returns the names of --pull-secrets.
func (c *cluster) secrets() (names []string) {
	for name := range strings.SplitSeq(c.pullSecrets, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
