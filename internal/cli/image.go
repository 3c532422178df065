package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/internal/envimage"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/session/spec"
)

func (a *commandLine) newImageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "Build, list, fetch and remove images",
		Long: `Image builds images of environment specs: the image that docker.image names or
docker.build builds, plus the spec's variables and working directory. They are
called fumehood:NAME, after the spec's name. They are caches: 'fumehood cleanup'
removes them only with --caches.

It also lists the images that a task needs, and fetches them before a run.`,
		Example: `  fumehood image build env.yaml
  fumehood image list
  fumehood image prune env.yaml
  fumehood image plan task.yaml`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.newImageBuildCommand(), a.newImageGuestCommand(), a.newImageListCommand(), a.newImageLoadCommand(), a.newImagePlanCommand(), a.newImagePrefetchCommand(), a.newImagePruneCommand())
	return cmd
}

func (a *commandLine) newImageBuildCommand() *cobra.Command {
	var s envimage.Submission
	var allow allowFlags
	cmd := &cobra.Command{
		Use:   "build SPEC",
		Short: "Build a spec's image, if it is not up to date",
		Long: `Build builds the image fumehood:NAME of a spec if an input has changed: base
images, the build's context and arguments, variables, working directory, user.
Missing base images are pulled. Variables of this machine (include_os_env) are
not included. With docker.build, docker.image becomes a tag of the image only
with --allow-unsafe: others could pull, or build on, an image of that name.

With --submission the image also contains the folder in the working directory,
the assets in /static, and the file changes of the evaluation's setup (commands,
then eval_commands). The setup runs during the build, with the spec's network,
memory and CPU limits, and timeout; otherwise it is isolated as Docker isolates
builds, not as sandboxes are. Links that lead out of a folder, pipes, sockets
and devices are rejected.`,
		Example: `  fumehood image build env.yaml
  fumehood image build env.yaml --submission work --assets tests
  fumehood image build env.yaml --submission work --tag judged:7`,
		Args: wantArguments("SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, flag := range []string{"assets", "tag"} {
				if s.Workspace == "" && cmd.Flags().Changed(flag) {
					return usageError("--%s needs --submission", flag)
				}
			}
			return a.buildImage(cmd.Context(), args[0], allow, s)
		},
	}
	allow.addRead(cmd.Flags(), "spec")
	cmd.Flags().BoolVar(&allow.allowUnsafe, "allow-unsafe", false, "allow, and log, a builder chosen by the Dockerfile, ADD from a URL, and the name in docker.image as a tag")
	cmd.Flags().StringVar(&s.Workspace, "submission", "", "add this `folder` as the workspace, and run the evaluation's setup")
	cmd.Flags().StringVar(&s.Assets, "assets", "", "add the contents of this `folder` to /static")
	cmd.Flags().StringVar(&s.Tag, "tag", "", "the `name` of the submission's image (default fumehood:NAME-submission-HASH)")
	return cmd
}

func (a *commandLine) buildImage(ctx context.Context, file string, allow allowFlags, s envimage.Submission) error {
	return a.withImages(ctx, file, allow, func(b provider.ImageBuilder, e *spec.Environment) error {
		var built envimage.Built
		var err error
		if s.Workspace == "" {
			built, err = envimage.Build(ctx, b, e, a.building)
		} else {
			built, err = envimage.BuildSubmission(ctx, b, e, s, a.building)
		}
		if err != nil {
			return err
		}
		did := "built"
		if built.UpToDate {
			did = "up to date"
		}
		return a.say("%s: %s, %s\n", strings.Join(built.Tags, ", "), did, shortID(built.ID))
	})
}

// withImages calls f with the provider's image builder and the spec in file. The spec is nil if file is empty.
func (a *commandLine) withImages(ctx context.Context, file string, allow allowFlags, f func(provider.ImageBuilder, *spec.Environment) error) (err error) {
	var e *spec.Environment
	if file != "" {
		if e, err = spec.Load(file); err != nil {
			return err
		}
		allow.over(e)
	}
	p, err := a.openProvider(ctx, a.provider)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	b, err := app.ImageBuilder(p)
	if err != nil {
		return err
	}
	return f(b, e)
}

func (a *commandLine) newImageListCommand() *cobra.Command {
	var asJSON, builtin bool
	var allow allowFlags
	cmd := &cobra.Command{
		Use:   "list [SPEC]",
		Short: "List the images built from specs and Compose projects",
		Long: `List prints the images that Fumehood has built: tags, size, creation time, and
the beginning of the hash of their inputs. With a spec it lists the images of
that environment, and whether they are up to date. With --builtin it lists the
images that ship with Fumehood, which the docker provider builds from the
default image at first use, and again when they have changed.`,
		Example: `  fumehood image list
  fumehood image list env.yaml --json
  fumehood image list --builtin`,
		Args: atMostOneSpec,
		RunE: func(cmd *cobra.Command, args []string) error {
			if builtin && len(args) > 0 {
				return usageError("--builtin takes no spec")
			}
			if builtin {
				return a.listBuiltin(cmd.Context(), asJSON)
			}
			return a.listImages(cmd.Context(), first(args), allow, asJSON)
		},
	}
	allow.addRead(cmd.Flags(), "spec")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	cmd.Flags().BoolVar(&builtin, "builtin", false, "list the images that ship with Fumehood")
	return cmd
}

// builtinJSON is an object of `fumehood image list --builtin --json`.
type builtinJSON struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	ID       string `json:"id"` // empty if it is not built
	UpToDate bool   `json:"up_to_date"`
}

func (a *commandLine) listBuiltin(ctx context.Context, asJSON bool) error {
	return a.withImages(ctx, "", allowFlags{}, func(b provider.ImageBuilder, _ *spec.Environment) error {
		images, missing := docker.Builtins(), "built by the docker provider"
		if p, ok := b.(*docker.Provider); ok {
			var err error
			if images, err = p.BuiltinImages(ctx); err != nil {
				return err
			}
			missing = "not built yet"
		}
		if asJSON {
			all := make([]builtinJSON, len(images))
			for i, b := range images {
				all[i] = builtinJSON{b.Name, b.About, b.Image.ID, b.UpToDate}
			}
			return a.printJSON(all)
		}
		for _, b := range images {
			state := missing
			switch {
			case b.UpToDate:
				state = "built, up to date"
			case b.Image.ID != "":
				state = "outdated"
			}
			if err := a.say("%s: %s (%s)\n", b.Name, strings.TrimSuffix(b.About, "."), state); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *commandLine) listImages(ctx context.Context, file string, allow allowFlags, asJSON bool) error {
	return a.withImages(ctx, file, allow, func(b provider.ImageBuilder, e *spec.Environment) error {
		listed, err := envimage.List(ctx, b, e)
		if err != nil {
			return err
		}
		if asJSON {
			all := make([]imageJSON, len(listed))
			for i, l := range listed {
				all[i] = newImageJSON(l)
			}
			return a.printJSON(all)
		}
		for _, l := range listed {
			if err := a.say("%s: %s\n", imageName(l), imageState(l)); err != nil {
				return err
			}
		}
		if len(listed) == 0 {
			return a.say("no images\n")
		}
		return nil
	})
}

func (a *commandLine) newImagePruneCommand() *cobra.Command {
	var all, dryRun, asJSON bool
	var allow allowFlags
	cmd := &cobra.Command{
		Use:   "prune [SPEC]",
		Short: "Remove outdated images that were built from specs",
		Long: `Prune removes the images that newer ones have replaced; with a spec, those of
that environment whose inputs have changed. With --all it also removes images
that are up to date. Images that a container uses, even a stopped one, stay.`,
		Example: `  fumehood image prune env.yaml --dry-run
  fumehood image prune --all`,
		Args: atMostOneSpec,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pruneImages(cmd.Context(), first(args), allow, all, dryRun, asJSON)
		},
	}
	allow.addRead(cmd.Flags(), "spec")
	cmd.Flags().BoolVar(&all, "all", false, "remove all images that no container uses")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list only, remove nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func (a *commandLine) pruneImages(ctx context.Context, file string, allow allowFlags, all, dryRun, asJSON bool) error {
	return a.withImages(ctx, file, allow, func(b provider.ImageBuilder, e *spec.Environment) error {
		pruned, err := envimage.Prune(ctx, b, e, all, dryRun)
		if asJSON && (err == nil || pruned != nil) {
			out := make([]prunedJSON, len(pruned))
			for i, p := range pruned {
				out[i] = prunedJSON{newImageJSON(p.Listed), p.Remove, p.Removed}
			}
			return errors.Join(a.printJSON(out), err)
		}
		for _, p := range pruned {
			did := "left"
			switch {
			case p.Removed:
				did = "removed"
			case p.Remove && dryRun:
				did = "would remove"
			case p.Remove:
				did = "failed"
			}
			if err := a.say("%s: %s (%s)\n", imageName(p.Listed), did, imageState(p.Listed)); err != nil {
				return err
			}
		}
		if len(pruned) == 0 && err == nil {
			return a.say("no images\n")
		}
		return err
	})
}

// atMostOneSpec is the argument check of commands with an optional SPEC.
func atMostOneSpec(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return nil
	}
	return wantArguments("SPEC")(cmd, args)
}

// first returns the first argument, or "".
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// shortID shortens an image's ID as docker does.
func shortID(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), 12)]
}

// imageName returns an image's tags, or its short ID if it has none.
func imageName(l envimage.Listed) string {
	if len(l.Tags) == 0 {
		return shortID(l.ID)
	}
	return strings.Join(l.Tags, ", ")
}

// imageState describes an image: size, creation time, inputs, and whether it is up to date and in use.
func imageState(l envimage.Listed) string {
	parts := []string{spec.FormatSize(l.Size), "made " + l.Created.UTC().Format(time.DateTime)}
	if l.Mark.Inputs != "" {
		parts = append(parts, "inputs "+l.Mark.Inputs[:min(len(l.Mark.Inputs), 12)])
	}
	if l.State != envimage.Unknown {
		parts = append(parts, string(l.State))
	}
	if l.InUse {
		parts = append(parts, "in use")
	}
	return strings.Join(parts, ", ")
}

type imageJSON struct {
	ID          string    `json:"id"`
	Tags        []string  `json:"tags"`
	Environment string    `json:"environment"`
	Created     time.Time `json:"created"`
	Size        int64     `json:"size"`
	Inputs      string    `json:"inputs"`
	UpToDate    *bool     `json:"up_to_date"` // null if unknown
	InUse       bool      `json:"in_use"`
}

type prunedJSON struct {
	imageJSON
	Remove  bool `json:"remove"`
	Removed bool `json:"removed"`
}

func newImageJSON(l envimage.Listed) imageJSON {
	obj := imageJSON{
		ID: l.ID, Tags: append([]string{}, l.Tags...), Environment: l.Mark.Environment, Created: l.Created.UTC(), Size: l.Size,
		Inputs: l.Mark.Inputs, InUse: l.InUse,
	}
	if l.State == envimage.Current || l.State == envimage.Outdated {
		obj.UpToDate = new(l.State == envimage.Current)
	}
	return obj
}
