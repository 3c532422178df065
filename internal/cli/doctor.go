package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/provider/workers"
)

func (a *commandLine) newDoctorCommand() *cobra.Command {
	var asJSON, rights bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what runs sandboxes: a Docker daemon, machine or cluster",
		Long: `Doctor reports which daemon is used, what the daemon and its machine support,
and what that means for isolation. In a sandbox of an image that it builds
itself, without a registry, it looks for a network and tries to exceed the
limits. If there is no daemon, or with --provider native, it reports what this
machine and user can do and enforce without one. With --provider kubernetes it
checks the cluster and this account's rights, and starts a sandbox; with
--workers it asks each of them. The exit code is 1 if a check failed, but for
workers only if none can start sandboxes.

--print-rbac prints the Role that an account needs for --provider kubernetes, or
with --workers kubernetes:SERVICE to find the workers of a Service.`,
		Example: `  fumehood doctor
  DOCKER_HOST=ssh://build@example.org fumehood doctor --json
  fumehood doctor --provider kubernetes --print-rbac | kubectl apply -f -`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rights {
				return a.printRights()
			}
			return a.doctor(cmd.Context(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	cmd.Flags().BoolVar(&rights, "print-rbac", false, "only print a Role with the rights that --provider kubernetes, or --workers kubernetes:SERVICE, needs, as YAML")
	return cmd
}

// printRights prints the Role for the kubernetes provider, or for finding workers in a cluster.
func (a *commandLine) printRights() error {
	_, discovers := a.fleet.service()
	var role string
	switch {
	case a.provider == kubernetesName:
		role = kubernetes.Role(a.cluster.namespace)
	case a.provider == workersName && discovers:
		role = kubernetes.WorkerRole(a.cluster.namespace)
	default:
		return usageError("--print-rbac is for the kubernetes provider: add --provider kubernetes, or --workers kubernetes:SERVICE")
	}
	_, err := io.WriteString(a.Out, role)
	return err
}

func (a *commandLine) doctor(ctx context.Context, asJSON bool) error {
	checks := []docker.Check{}
	var werr error
	report := func(c docker.Check) {
		checks = append(checks, c)
		if asJSON {
			return
		}
		if _, err := io.WriteString(a.Out, checkText(c)); err != nil {
			werr = err
		}
	}
	var pods kubernetes.Options
	var servers workers.Options
	var err error
	switch a.provider {
	case kubernetesName:
		pods, err = a.clusterOptions()
	case workersName:
		servers, err = a.fleetOptions()
	}
	if err != nil {
		return err
	}
	var ok bool
	switch missing := a.withoutDaemon(ctx); {
	case missing != nil:
		report(docker.Check{Name: "endpoint", Status: provider.StatusNote, Detail: reason(missing) + "; sandboxes run with --provider native"})
		ok = native.Diagnose(report)
	case a.provider == "native":
		ok = native.Diagnose(report)
	case a.provider == kubernetesName:
		ok = kubernetes.Diagnose(ctx, pods, report)
	case a.provider == workersName:
		ok = workers.Diagnose(ctx, servers, report)
	default:
		ok = docker.Diagnose(ctx, a.dockerOptions(), report)
	}
	if asJSON {
		werr = a.printJSON(checks)
	}
	switch {
	case werr != nil:
		return werr
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !ok:
		return &exitError{code: exitCheckFailed, err: errors.New("a check failed: sandboxes will not work as they should")}
	}
	return nil
}

// withoutDaemon returns why the provider auto is native; nil if it is docker, or if the user has chosen a provider.
func (a *commandLine) withoutDaemon(ctx context.Context) error {
	if a.provider != auto || native.CheckSupport() != nil {
		return nil
	}
	a.quietly()
	p, err := a.openDocker(ctx)
	switch {
	case err == nil:
		_ = p.Close(ctx) // it has made nothing
	case errors.Is(err, docker.ErrNoDaemon):
		return err
	}
	return nil
}

// checkText formats a check: its status, name and detail, with the hint on the next line.
func checkText(c docker.Check) string {
	const indent = 4 + 2 + 15 + 2
	text := fmt.Sprintf("%-4s  %-15s  %s\n", c.Status, c.Name, wrap(c.Detail, indent))
	if c.Hint != "" {
		text += fmt.Sprintf("%*s> %s\n", indent, "", wrap(c.Hint, indent+2))
	}
	return text
}
