package cli

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/session/spec"
)

func (a *commandLine) newWorkersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workers",
		Short:   "Print what runs workers in a Kubernetes cluster",
		Long:    "Workers are servers ('fumehood serve') that run the sandboxes of --workers.",
		Example: `  fumehood workers manifest --image REF --token-secret token --tls-secret tls`,
		Args:    noCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.newWorkersManifestCommand())
	return cmd
}

// manifest has the flags of 'workers manifest'.
type manifest struct {
	name, image, tokenSecret, tlsSecret, memory, storage string
	replicas, maxSandboxes                               int
	cpus                                                 float64
	drain                                                time.Duration
	privileged                                           bool
}

func (a *commandLine) newWorkersManifestCommand() *cobra.Command {
	var m manifest
	cmd := &cobra.Command{
		Use:   "manifest [-- SERVE-FLAG...]",
		Short: "Print a StatefulSet of workers and its Service, as YAML",
		Long: `Manifest prints a StatefulSet whose Pods run 'fumehood serve' with the provider
native, and a headless Service by which --workers kubernetes:NAME finds them.
The token, in the key "token", and the certificate are Secrets of the namespace.
The certificate's name is NAME.NAMESPACE.svc. It makes no Secrets, and needs no
cluster.

The Pods are root in a user namespace, where sandboxes have no control groups:
their memory is measured, and only the Pod as a whole is limited by the kernel.
--privileged gives the kernel's limits to each sandbox, and the Pod the rights
of root on the node. Flags after "--" are for 'fumehood serve'.`,
		Example: `  fumehood workers manifest --image r.example.org/fumehood:1 --namespace evals \
      --token-secret token --tls-secret tls | kubectl apply -f -
  fumehood workers manifest --image r.example.org/fumehood:1 --namespace evals \
      --token-secret token --tls-secret tls -- --allow-unenforced-limits`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				return usageError("workers manifest takes no arguments, but %q was given; flags of 'fumehood serve' follow --", args[0])
			}
			if err := checkServeFlags(cmd.Root(), args); err != nil {
				return err
			}
			text, err := m.render(a.cluster.namespace, a.cluster.secrets(), args)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.Out, text)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&m.image, "image", "", "the `image` with the program fumehood")
	flags.StringVar(&m.tokenSecret, "token-secret", "", "the `name` of the Secret with the bearer token")
	flags.StringVar(&m.tlsSecret, "tls-secret", "", "the `name` of the Secret, of the type kubernetes.io/tls, with the certificate")
	flags.StringVar(&m.name, "name", "fumehood", "the `name` of the StatefulSet and the Service")
	flags.IntVar(&m.replicas, "replicas", 1, "the `number` of workers")
	flags.StringVar(&m.memory, "memory", "8GiB", "the `size` of a worker's memory")
	flags.Float64Var(&m.cpus, "cpus", 4, "the `number` of a worker's cores")
	flags.StringVar(&m.storage, "storage", "20GiB", "the `size` of a worker's disk, for images and sandboxes")
	flags.IntVar(&m.maxSandboxes, "max-sandboxes", 0, "the `number` of sandboxes of a worker at a time (default: one for each 2 GiB of --memory, less 512 MiB for the server)")
	flags.DurationVar(&m.drain, "drain", 10*time.Minute, "how long a worker that ends waits for its sandboxes, a `time`")
	flags.BoolVar(&m.privileged, "privileged", false, "run privileged Pods: all limits, but no isolation between the worker and its node")
	return cmd
}

// checkServeFlags rejects what 'fumehood serve' does not take.
func checkServeFlags(root *cobra.Command, args []string) error {
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		return err
	}
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch name {
		case "listen", "host", "token-file", "tls-cert", "tls-key", "socket", "stdio", "provider", "max-sandboxes", "drain":
			if strings.HasPrefix(arg, "--") {
				return usageError("--%s after -- is set by the manifest", name)
			}
		}
	}
	if err := serve.ParseFlags(args); err != nil {
		return usageError("flags of serve: %w", err)
	}
	if rest := serve.Flags().Args(); len(rest) > 0 {
		return usageError("flags of serve: %q is not a flag", rest[0])
	}
	return nil
}

//go:embed workersmanifest.yaml.tmpl
var manifestText string

const (
	workerPort = 8420
	// serverMemory is what the server and the guests may use of a worker's memory, in bytes.
	serverMemory = 512 << 20
	// drainMargin is what a Pod has beside --drain to end.
	drainMargin = time.Minute
	// maxName is the length of a StatefulSet's name, to which labels add a hash.
	maxName = 52
)

// render returns the manifest as YAML.
func (m *manifest) render(namespace string, pullSecrets, serveFlags []string) (string, error) {
	memory, cpus, storage, err := m.resources()
	if err != nil {
		return "", err
	}
	for flag, value := range map[string]string{"image": m.image, "token-secret": m.tokenSecret, "tls-secret": m.tlsSecret} {
		if value == "" {
			return "", usageError("workers manifest needs --image, --token-secret and --tls-secret: --%s is missing", flag)
		}
	}
	for flag, value := range map[string]string{"token-secret": m.tokenSecret, "tls-secret": m.tlsSecret} {
		if bad := validation.IsDNS1123Subdomain(value); len(bad) > 0 {
			return "", usageError("--%s %q is not the name of a Secret: %s", flag, value, bad[0])
		}
	}
	if bad := validation.IsDNS1035Label(m.name); len(bad) > 0 || len(m.name) > maxName {
		return "", usageError("--name %q is not the name of a Service with at most %d characters", m.name, maxName)
	}
	if bad := validation.IsDNS1123Label(namespace); namespace != "" && len(bad) > 0 {
		return "", usageError("--namespace %q is not the name of a namespace: %s", namespace, bad[0])
	}
	if m.replicas < 0 || m.replicas > math.MaxInt32 || m.maxSandboxes < 0 || m.drain < time.Second {
		return "", usageError("--replicas %d, --max-sandboxes %d or --drain %v is too small or too large", m.replicas, m.maxSandboxes, m.drain)
	}
	most := m.maxSandboxes
	if most == 0 {
		most = int((memory.Value() - serverMemory) / fumehood.DefaultMemory)
	}
	if most < 1 {
		return "", usageError("--memory %s has no room for a sandbox of 2 GiB, the default limit, beside 512 MiB for the server: raise it, or set --max-sandboxes, with smaller limits", m.memory)
	}
	args := []string{
		"serve", "--provider", "native", "--listen", "0.0.0.0:" + strconv.Itoa(workerPort),
		"--host", "$(POD_IP):" + strconv.Itoa(workerPort),
		"--host", fmt.Sprintf("$(POD_NAME).%s.$(POD_NAMESPACE).svc:%d", m.name, workerPort),
		"--token-file", "/etc/fumehood/token/token", "--tls-cert", "/etc/fumehood/tls/tls.crt", "--tls-key", "/etc/fumehood/tls/tls.key",
		"--drain", m.drain.String(), "--max-sandboxes", strconv.Itoa(most),
	}
	var text strings.Builder
	err = yamlTemplate(manifestText).Execute(&text, map[string]any{
		"Name": m.name, "Namespace": namespace, "Image": m.image, "TokenSecret": m.tokenSecret, "TLSSecret": m.tlsSecret,
		"Replicas": m.replicas, "Memory": memory, "CPUs": cpus, "Storage": storage, "Privileged": m.privileged, "Args": append(args, serveFlags...), "PullSecrets": pullSecrets,
		"Port": workerPort, "PortName": kubernetes.WorkerPort, "Grace": int64(math.Ceil((m.drain + drainMargin).Seconds())),
	})
	return text.String(), err
}

// resources returns the flags of resources as the cluster writes them.
func (m *manifest) resources() (memory, cpus, storage *resource.Quantity, err error) {
	sizes := map[string]*resource.Quantity{}
	for flag, text := range map[string]string{"memory": m.memory, "storage": m.storage} {
		size, err := spec.ParseSize(text)
		if err != nil || size <= 0 {
			return nil, nil, nil, usageError("--%s %q is not a size such as 8GiB", flag, text)
		}
		sizes[flag] = resource.NewQuantity(size, resource.BinarySI)
	}
	if !(m.cpus >= 0.001 && m.cpus <= fumehood.MaxCPUs) {
		return nil, nil, nil, usageError("--cpus %v is not a number of cores", m.cpus)
	}
	return sizes["memory"], resource.NewMilliQuantity(int64(math.Round(m.cpus*1000)), resource.DecimalSI), sizes["storage"], nil
}
