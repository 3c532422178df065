package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

func (a *commandLine) newImageLoadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE",
		Short: "Add the images in a file to those of the native provider",
		Long: `Load adds the images in a file under their names in it, as 'docker load' does
for a Docker Engine. The file is an archive of 'docker save', an OCI archive, or
a folder with an OCI layout. A name that meant another image means the new one.

A file can also be used without loading it: --image docker-archive:FILE.`,
		Example: `  fumehood image load app.tar
  fumehood run --provider native --image app -- ./server --version`,
		Args: wantArguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.loadImages(cmd.Context(), args[0]) },
	}
}

func (a *commandLine) loadImages(ctx context.Context, file string) (err error) {
	p, err := a.openProvider(ctx, a.provider)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	loader, ok := p.(provider.ImageLoader)
	if !ok {
		e := &fumehood.Error{Op: "load images", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s has no images of its own", p.Name())}
		if p.Name() == "docker" {
			e.Hint = "use `docker load --input FILE`, or --provider native"
		}
		return e
	}
	images, err := loader.LoadImages(ctx, file)
	for _, i := range images {
		err = errors.Join(err, a.say("%s: loaded, %s\n", strings.Join(i.Tags, ", "), shortID(i.ID)))
	}
	return err
}
