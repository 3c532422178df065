package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/internal/taskfile"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

func (a *commandLine) newImagePlanCommand() *cobra.Command {
	var allow allowFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan TASK",
		Short: "List the images that a task needs, and their sizes",
		Long: `Plan lists each image that the samples and graders of a task need, in the order
in which a run needs them: how many samples need it, whether the provider has
it, its compressed size, and its name. Nothing is pulled, built or started.

Sizes come from the manifests in the images' registries, for the provider's
platform, with the credentials of the docker command's configuration. Unpacked,
an image takes two to four times as much. The state of an image:

  here     the provider has it
  missing  it would be pulled
  unknown  it would be pulled where it is missing: what the nodes of a cluster
           have is not known
  build    it is built before the first attempt; the images that it is built on
           are in the list too
  local    it must be there: a file, an ID, or pull_policy: never
  default  the workers' own choice, which has no name here

The totals cover images that are pulled. An image that cannot be looked up, or
that the provider cannot use, such as a build in a cluster, is listed with its
error. The exit code is then 125, after the whole list.`,
		Example: `  fumehood image plan task.yaml
  fumehood image plan task.yaml --provider native --json`,
		Args: wantArguments("TASK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.quietly()
			return a.withTaskImages(cmd.Context(), args[0], allow, func(p provider.ImagePlanner, f *taskfile.File) error {
				plan, err := app.PlanImages(cmd.Context(), p, f, true)
				if err != nil {
					return err
				}
				show := a.printPlan
				if asJSON {
					show = func(plan *app.ImagePlan) error { return a.printJSON(newPlanJSON(plan)) }
				}
				if err := show(plan); err != nil {
					return err
				}
				return plan.Failures("plan images")
			})
		},
	}
	allow.add(cmd.Flags(), "task")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// withTaskImages calls f with a task and the provider of its images.
func (a *commandLine) withTaskImages(ctx context.Context, file string, allow allowFlags, f func(provider.ImagePlanner, *taskfile.File) error) (err error) {
	task, err := taskfile.Open(file, taskfile.ReadOptions{AllowRead: allow.allowRead, AllowUnsafe: allow.allowUnsafe, Logger: a.log})
	if err != nil {
		return err
	}
	if err := a.checkLocal(task.File, task.Provider()); err != nil {
		return err
	}
	p, err := a.openFor(ctx, task.Provider())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	planner, err := app.ImagePlanner(p)
	if err != nil {
		return err
	}
	return f(planner, task)
}

// imageStateOf returns the state of a planned image, as in the help.
func imageStateOf(plan *app.ImagePlan, i *app.PlannedImage) string {
	switch {
	case i.Here:
		return "here"
	case i.Kind != provider.NeededPull && i.Kind != provider.NeededBase:
		return string(i.Kind)
	case plan.Storage.Hidden:
		return "unknown"
	}
	return "missing"
}

func (a *commandLine) printPlan(plan *app.ImagePlan) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SAMPLES\tSTATE\tSIZE\tIMAGE")
	for _, i := range plan.Images {
		size := "-"
		switch {
		case i.Err != nil:
			size = "error"
		case i.Size >= 0:
			size = spec.FormatSize(i.Size)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", i.Samples, imageStateOf(plan, i), size, describeRef(i))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	t := plan.Totals()
	free := "not known"
	if plan.Storage.Free >= 0 {
		free = spec.FormatSize(plan.Storage.Free)
	}
	fmt.Fprintf(&b, "\npulled: %s, %s, or %s with shared layers once\n", count(t.Images, "image"), spec.FormatSize(t.Bytes), spec.FormatSize(t.UniqueBytes))
	missing := count(t.Missing, "image") + ", " + spec.FormatSize(t.MissingBytes) + " in layers that are not here"
	if plan.Storage.Hidden {
		missing = "not known"
	}
	fmt.Fprintf(&b, "missing: %s\n", missing)
	fmt.Fprintf(&b, "free disk: %s\n", free)
	return a.say("%s", b.String())
}

// describeRef returns an image's reference, with its platform if the task sets one.
func describeRef(i *app.PlannedImage) string {
	ref := i.Ref
	if i.Kind == provider.NeededDefault {
		ref = "(the workers' default image)"
	}
	if i.Platform != "" {
		ref += " (" + i.Platform + ")"
	}
	return ref
}

// planJSON is what `fumehood image plan --json` prints.
type planJSON struct {
	Images   []plannedJSON `json:"images"`
	Platform string        `json:"platform"`
	Totals   struct {
		Images       int    `json:"images"`
		Bytes        int64  `json:"bytes"`
		UniqueBytes  int64  `json:"unique_bytes"`
		Missing      *int   `json:"missing"` // null if unknown, as the next
		MissingBytes *int64 `json:"missing_bytes"`
		Failed       int    `json:"failed"`
		FreeBytes    *int64 `json:"free_bytes"` // null if unknown
	} `json:"totals"`
}

type plannedJSON struct {
	Image    string     `json:"image"`
	Platform string     `json:"platform,omitempty"`
	Kind     string     `json:"kind"`
	Samples  int        `json:"samples"`
	Here     *bool      `json:"here"` // null if unknown
	Size     *int64     `json:"size"` // compressed bytes; null if unknown
	Error    *api.Error `json:"error,omitempty"`
}

func newPlanJSON(plan *app.ImagePlan) planJSON {
	obj := planJSON{Images: []plannedJSON{}, Platform: plan.Storage.Platform}
	for _, i := range plan.Images {
		one := plannedJSON{Image: i.Ref, Platform: i.Platform, Kind: string(i.Kind), Samples: i.Samples}
		if !plan.Storage.Hidden {
			one.Here = &i.Here
		}
		if i.Size >= 0 {
			one.Size = &i.Size
		}
		if i.Err != nil {
			one.Error = describe(i.Err)
		}
		obj.Images = append(obj.Images, one)
	}
	t := plan.Totals()
	obj.Totals.Images, obj.Totals.Bytes, obj.Totals.UniqueBytes = t.Images, t.Bytes, t.UniqueBytes
	obj.Totals.Failed = t.Failed
	if !plan.Storage.Hidden {
		obj.Totals.Missing, obj.Totals.MissingBytes = &t.Missing, &t.MissingBytes
	}
	if plan.Storage.Free >= 0 {
		obj.Totals.FreeBytes = &plan.Storage.Free
	}
	return obj
}
