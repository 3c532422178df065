package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/internal/taskfile"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// prefetchOptions are the options of `fumehood image prefetch`.
type prefetchOptions struct {
	file     string
	allow    allowFlags
	atOnce   int
	maxBytes int64 // 0 means no limit
	print    bool  // print a DaemonSet, and fetch nothing
}

func (a *commandLine) newImagePrefetchCommand() *cobra.Command {
	var opts prefetchOptions
	var most string
	cmd := &cobra.Command{
		Use:   "prefetch TASK",
		Short: "Fetch the images that a task needs, before a run",
		Long: `Prefetch makes the provider have each image that a task pulls, once, in the
order in which a run needs them. Images that are there are skipped. Images that
are built are not built, but what they are built on is fetched. With the workers
provider, each worker gets each image.

--max-bytes limits what is fetched, in compressed bytes as in 'image plan':
layers that images share count once, and those of images that are there do not
count. Prefetch stops before the first image that would exceed it, and lists the
images that are left.

The nodes of a cluster pull images themselves. With --print-daemonset, for the
provider kubernetes, prefetch prints a DaemonSet for 'kubectl apply -f -', by
which each node pulls the images, one after the other; for more than 100 images,
several of them. It does not contact the cluster, and counts no image as there.
If one of the images has an error, it prints none.

An image that cannot be fetched does not stop the others; all failures are
listed at the end.

Exit codes: 0 all images are there, or only those are missing that --max-bytes
left; 2 wrong usage or an invalid task; 125 at least one image failed.`,
		Example: `  fumehood image prefetch task.yaml
  fumehood image prefetch task.yaml --at-once 4 --max-bytes 50GiB
  fumehood image prefetch task.yaml --provider kubernetes --namespace evals \
      --guest-image r.example.org/guest:1 --print-daemonset | kubectl apply -f -`,
		Args: wantArguments("TASK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.file = args[0]
			if opts.print && cmd.Flags().Changed("at-once") {
				return usageError("--at-once has no effect with --print-daemonset: a node pulls one image after the other")
			}
			if opts.atOnce < 1 {
				return usageError("--at-once %d is not above 0", opts.atOnce)
			}
			if most != "" {
				var err error
				if opts.maxBytes, err = spec.ParseSize(most); err != nil || opts.maxBytes <= 0 {
					return usageError("--max-bytes %q is not a size above 0, such as 50GiB", most)
				}
			}
			if !opts.print {
				return a.prefetchImages(cmd.Context(), opts)
			}
			if err := a.checkDaemonSet(); err != nil {
				return err
			}
			a.quietly()
			return a.withTaskImages(cmd.Context(), opts.file, opts.allow, func(p provider.ImagePlanner, f *taskfile.File) error {
				return a.printDaemonSets(cmd.Context(), p, f, opts.maxBytes)
			})
		},
	}
	opts.allow.add(cmd.Flags(), "task")
	cmd.Flags().BoolVar(&opts.print, "print-daemonset", false, "print a DaemonSet that fetches the images, as YAML, and fetch nothing")
	cmd.Flags().IntVar(&opts.atOnce, "at-once", 2, "fetch this `number` of images at once")
	cmd.Flags().StringVar(&most, "max-bytes", "", "fetch at most this `size` of compressed layers (default: no limit)")
	return cmd
}

func (a *commandLine) prefetchImages(ctx context.Context, o prefetchOptions) error {
	return a.withTaskImages(ctx, o.file, o.allow, func(planner provider.ImagePlanner, f *taskfile.File) error {
		p, err := app.ImageFetcher(planner)
		if err != nil {
			return err
		}
		plan, err := app.PlanImages(ctx, p, f, o.maxBytes > 0)
		if err != nil {
			return err
		}
		here, built := 0, 0
		for _, i := range plan.Images {
			switch {
			case i.Here:
				here++
				if i.Err != nil { // its size does not matter
					a.log.Debug("the size of an image that is there is not known", "image", i.Ref, "error", i.Err)
					i.Err = nil
				}
			case i.Kind == provider.NeededBuild:
				built++
			}
		}
		chosen, left := plan.Choose(o.maxBytes)
		began, fetched := time.Now(), 0
		var printed error
		err = app.FetchImages(ctx, p, chosen, o.atOnce, func(i *app.PlannedImage) {
			if i.Err != nil {
				a.tell("failed: %s", describeRef(i))
				return
			}
			fetched++
			printed = errors.Join(printed, a.say("%s: fetched\n", describeRef(i)))
		})
		if err := errors.Join(err, printed); err != nil {
			return err
		}
		for _, i := range left {
			if err := a.say("%s: left, because of --max-bytes\n", describeRef(i)); err != nil {
				return err
			}
		}
		if err := a.say("fetched %s in %v, %d were there, %d are built by a run, %d left\n",
			count(fetched, "image"), time.Since(began).Round(100*time.Millisecond), here, built, len(left)); err != nil {
			return err
		}
		return plan.Failures("fetch images")
	})
}
