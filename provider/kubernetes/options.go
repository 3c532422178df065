package kubernetes

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/fumehood/fumehood"
)

// DefaultImage is the image of a sandbox whose spec names none.
const DefaultImage = "python:3.12-slim"

const (
	// DefaultLease is how long a Pod lasts at most, unless it is kept. It is the Pod's activeDeadlineSeconds.
	DefaultLease = 7 * 24 * time.Hour
	// DefaultPending is how long a Pod may wait for a node or for its images.
	DefaultPending = 10 * time.Minute
	// DefaultRequestMemory is the memory in bytes that the scheduler reserves for a sandbox.
	DefaultRequestMemory = 64 << 20
	// DefaultRequestCPUs are the cores that it reserves.
	DefaultRequestCPUs = 0.05
)

// Options configures a provider.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. Empty means the files of KUBECONFIG, else ~/.kube/config, else, in a Pod,
	// its service account. Context is a context of the file; empty means the current one.
	Kubeconfig, Context string
	// Namespace is where the Pods are. Empty means that of the context or of this Pod, else "default".
	Namespace string
	// GuestImage is the reference of the image that WriteGuestImage or PushGuestImage of the same version has made, as the
	// cluster's nodes know it. Starts need it.
	GuestImage string
	// DefaultImage is used if a spec names no image. Empty means the constant DefaultImage.
	DefaultImage string
	// PullSecrets are the names of secrets for registries, in the namespace.
	PullSecrets []string
	// RuntimeClass is the name of the RuntimeClass of sandboxes whose spec names no runtime. Empty means the cluster's
	// default.
	RuntimeClass string
	// UserNamespaces gives each Pod a user namespace (hostUsers: false). The nodes must support it.
	UserNamespaces bool
	// RequestMemory, in bytes, and RequestCPUs, in cores, are what the scheduler reserves for a sandbox, at most its limits.
	// 0 means the defaults.
	RequestMemory int64
	RequestCPUs   float64
	// Pending is how long a Pod may wait for a node or its images before its start fails with the cluster's reason. 0 means
	// DefaultPending. A reason that does not pass, such as an image that does not exist, ends the start at once.
	Pending time.Duration
	// MaxStarting and MaxRunning are how many sandboxes of this provider start, or exist, at once; further calls of Start
	// wait. 0 means 32 starts, and no limit of existing ones.
	MaxStarting, MaxRunning int
	// Lease is how long a sandbox that is not kept lasts at most, and how long other machines' cleanups leave it alone. 0
	// means DefaultLease.
	Lease time.Duration
	// NoReaper disables the reaper, a second process of this program that deletes this provider's Pods if this process is
	// killed. NoSweep leaves the Pods of ended processes to Cleanup; otherwise the first start deletes them.
	NoReaper, NoSweep bool
	// AllowUnenforcedLimits starts sandboxes whose spec limits processes, which a Pod cannot. Info names such limits.
	AllowUnenforcedLimits bool
	// Logger receives warnings. Nil disables logging.
	Logger *slog.Logger
}

const defaultStarting = 32

// withDefaults returns the options with defaults, or an ErrConfig.
func (o Options) withDefaults() (Options, error) {
	bad := func(format string, a ...any) (Options, error) {
		return o, &fumehood.Error{Op: "make kubernetes provider", Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	switch {
	case o.Lease < 0 || o.Pending < 0:
		return bad("lease %v or pending %v is negative", o.Lease, o.Pending)
	case o.MaxStarting < 0 || o.MaxRunning < 0:
		return bad("MaxStarting %d or MaxRunning %d is negative", o.MaxStarting, o.MaxRunning)
	case o.RequestMemory < 0 || !(o.RequestCPUs >= 0 && o.RequestCPUs <= fumehood.MaxCPUs):
		return bad("a request of %d bytes or %v cores is not possible", o.RequestMemory, o.RequestCPUs)
	}
	o.DefaultImage = cmp.Or(o.DefaultImage, DefaultImage)
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.Pending = cmp.Or(o.Pending, DefaultPending)
	o.RequestMemory = cmp.Or(o.RequestMemory, DefaultRequestMemory)
	o.RequestCPUs = cmp.Or(o.RequestCPUs, DefaultRequestCPUs)
	o.MaxStarting = cmp.Or(o.MaxStarting, defaultStarting)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
